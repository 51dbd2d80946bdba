package fallback_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

var errDown = errors.New("connection refused")

func fixedSpan(limit uint64) uint64 {
	if limit > 1<<62 {
		return limit
	}
	return 2 * limit
}

// limiterOn is a limiter on a virtual clock.
func limiterOn(t testing.TB, clock *weirtest.Clock) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newFallback(t testing.TB, primary, local weir.Strategy, cfg fallback.Config) *fallback.Fallback {
	f, err := fallback.New(primary, local, cfg)
	require.NoError(t, err)
	return f
}

// With one instance a Fallback is a strategy as lawful as what is behind it, whoever decides.
func TestLaws(t *testing.T) {
	kinds := map[string]struct {
		of   func(*weir.Limiter) weir.Strategy
		laws weirtest.Laws
	}{
		"FixedWindow": {func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }, weirtest.Laws{Span: fixedSpan, Aligned: true}},
		"SlidingLog":  {func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }, weirtest.Laws{}},
	}
	for name, kind := range kinds {
		kind.laws.Histories = 20
		t.Run(name+"/healthy", func(t *testing.T) {
			weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
				return newFallback(t, kind.of(limiterOn(t, clock)), kind.of(limiterOn(t, clock)),
					fallback.Config{Now: clock.Now, Timeout: time.Minute})
			}, kind.laws)
		})
		t.Run(name+"/failed", func(t *testing.T) {
			weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
				return newFallback(t, weirtest.FailAll(errDown), kind.of(limiterOn(t, clock)),
					fallback.Config{Now: clock.Now, Timeout: time.Minute})
			}, kind.laws)
		})
	}
	t.Run("Lease", func(t *testing.T) {
		weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
			return newFallback(t, limiterOn(t, clock).FixedWindow(), limiterOn(t, clock).FixedWindow(),
				fallback.Config{Now: clock.Now, Timeout: time.Minute, Lease: 8, Skew: -1})
		}, weirtest.Laws{Span: fixedSpan, Aligned: true, Histories: 20})
	})
	t.Run("Denials", func(t *testing.T) {
		weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
			return newFallback(t, limiterOn(t, clock).FixedWindow(), limiterOn(t, clock).FixedWindow(),
				fallback.Config{Now: clock.Now, Timeout: time.Minute, DenialCache: 16, Skew: -1})
		}, weirtest.Laws{Span: fixedSpan, Aligned: true, Histories: 20,
			Skip: map[string]string{"ClockBack": "a denial is good by the clock"}})
	})
}
