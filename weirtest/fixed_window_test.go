package weirtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// conforms tests a strategy of package weir against laws, sweeping included.
func conforms(
	t *testing.T, pick func(testing.TB, *weir.Limiter) weir.Strategy, laws weirtest.Laws,
) {
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

// In UTC hours, days, and weeks that begin on a Thursday, are windows of one length, aligned to the
// epoch.
func TestCalendarConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	day := 24 * time.Hour
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, c := range []struct {
		unit     weir.CalendarUnit
		zone     *time.Location
		duration time.Duration
	}{
		{weir.Hour, nil, time.Hour}, {weir.Day, nil, day}, {weir.Week.From(4), nil, 7 * day},
		{weir.Month.From(17), berlin, 28 * day}, {weir.Day.At(6 * time.Hour), berlin, 23 * time.Hour},
	} {
		laws := weirtest.Laws{Histories: histories, Durations: []time.Duration{c.duration},
			FixedDuration: true,
			Span:          twice, Aligned: c.zone == nil}
		if !laws.Aligned {
			laws.Skip = map[string]string{"ClockBack": "the step back leads into the window before"}
		}
		t.Run(c.unit.String(), func(t *testing.T) {
			conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy {
				return l.Calendar(c.unit, c.zone)
			}, laws)
		})
	}
}
