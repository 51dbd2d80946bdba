package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// calendarFleet is a fleet that counts by the calendar of Berlin, on a morning on which its clocks
// are set: the day has 23 hours.
func calendarFleet(t *testing.T, unit weir.CalendarUnit, n int) *fleet {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	f := newFleet(t, n, func(l *weir.Limiter) weir.Strategy {
		return l.Calendar(unit, berlin)
	}, tripAtOnce, whole)
	f.clock.Set(time.Date(2026, 3, 29, 1, 0, 0, 0, berlin))
	return f
}

// durations are those of requests: a Calendar ignores them, so that they are no others.
var durations = []time.Duration{0, time.Minute, -1, 24 * time.Hour}

// Through outages a day admits no more than the bound, and primary is charged in full with what was
// admitted; the next day begins anew, and owes nothing.
func TestCalendarThroughOutages(t *testing.T) {
	f := calendarFleet(t, weir.Day, 3)
	r, turn := weir.Request{Key: "a", Limit: 300}, 0
	run := func() (admitted uint64) {
		for _, i := range f.instances {
			r.Duration = durations[turn%len(durations)]
			turn++
			if res, _ := ask(t, i, r); res.Allowed() {
				admitted++
				assert.True(t, res.ExpiresAt.Equal(time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC)), "%v",
					res.ExpiresAt)
			}
		}
		return admitted
	}
	var admitted uint64
	for range 30 {
		admitted += run()
	}
	for range 3 {
		f.server.fails(errDown)
		for range 20 {
			admitted += run()
			f.clock.Advance(time.Minute)
		}
		f.heal(t)
		admitted += run()
	}
	res, err := ops.Peek(t.Context(), f.server, &r)
	require.NoError(t, err)
	assert.EqualValues(t, 30*3+3*21*3, admitted)
	assert.Equal(t, admitted, res.TotalRequests-1, "primary knows of all of it")
	f.server.fails(errDown)
	for range 200 {
		admitted += run()
	}
	assert.LessOrEqual(t, admitted, bound(300, 3))

	f.clock.Set(time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC))
	f.heal(t)
	reconciled := f.instances[0].Stats().Reconciled
	assert.EqualValues(t, 300, most(t, f.instances[0], r))
	assert.Equal(t, reconciled, f.instances[0].Stats().Reconciled)
}

// All that was counted in a day counts to its end: if primary loses it, it is restored in full,
// though most of the day has passed.
func TestCalendarIsRestoredInFull(t *testing.T) {
	f := calendarFleet(t, weir.Day, 1)
	i, r := f.instances[0], weir.Request{Key: "a", Limit: 100, Cost: 80}
	res, _ := ask(t, i, r)
	require.True(t, res.Allowed())
	r.Cost, r.Duration = 1, time.Minute
	f.clock.Advance(20 * time.Hour)
	f.server.fails(errDown)
	ask(t, i, r)
	f.server.restart()
	f.heal(t)
	assert.EqualValues(t, 19, most(t, i, r), "80, and one during the outage, are counted")
}

// A reset during an outage is made up for as long as what it resets would count.
func TestCalendarIsResetAfterAnOutage(t *testing.T) {
	f := calendarFleet(t, weir.Month.From(29), 1)
	i, r := f.instances[0], weir.Request{Key: "a", Limit: 100}
	assert.EqualValues(t, 100, most(t, i, r))
	f.server.fails(errDown)
	ask(t, i, r)
	r.Duration = time.Minute
	require.NoError(t, ops.Reset(context.Background(), i, &r))
	f.clock.Advance(20 * 24 * time.Hour)
	f.heal(t)
	r.Duration = time.Hour
	assert.EqualValues(t, 100, most(t, i, r))
	assert.ErrorIs(t, ops.Reset(context.Background(), i, &weir.Request{}), weir.ErrID)
}
