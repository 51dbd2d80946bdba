package weirtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/weirtest"
)

// conforms tests a strategy of package weir against laws, sweeping included.
func conforms(t *testing.T, pick func(testing.TB, *weir.Limiter) weir.Strategy, laws weirtest.Laws) {
	var last *weir.Limiter
	laws.Sweep = func() { last.Sweep() }
	weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
		// With the shortest Timeout, the next sweep removes every expired bucket.
		limiter, err := weir.New(weir.Config{Now: clock.Now, Timeout: time.Nanosecond})
		require.NoError(t, err)
		t.Cleanup(func() { limiter.Close() })
		last = limiter
		return pick(t, limiter)
	}, laws)
}

// twice is the most that a fixed window admits in a span of one window.
func twice(limit uint64) uint64 { return 2 * limit }

func TestFixedWindowConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
		weirtest.Laws{Histories: histories, Span: twice, Aligned: true})
}
