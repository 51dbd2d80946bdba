package redislimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// hours returns a Calendar of hours of a process whose clock is off by d.
func hours(store *redislimit.Store, d time.Duration) *redislimit.Calendar {
	s := store.Calendar(weir.Hour, nil)
	redislimit.SetClock(s, skewed(d))
	return s
}

func TestALimitOfACalendarIsNamedByIt(t *testing.T) {
	store := open(t, redistest.Start(t).Addr, redislimit.Config{})
	assert.Equal(t, "calendar, 9 in month:17@UTC",
		store.Calendar(weir.Month.From(17), nil).Limit(9).String())
}

// Processes whose clocks differ by up to a window count together, in the window that the server's
// clock shows.
func TestCalendarGoesByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100}
	for {
		before := time.Now()
		require.NoError(t, server.Client().FlushAll(t.Context()).Err())
		var got []weir.Result
		for _, d := range []time.Duration{
			0, -59 * time.Minute, 59 * time.Minute, -time.Hour, time.Hour, -time.Minute,
		} {
			res, err := hours(store, d).Run(t.Context(), r)
			require.NoError(t, err, "%v", d)
			got = append(got, *res)
		}
		ends := before.Truncate(time.Hour).Add(time.Hour)
		if !time.Now().Before(ends) {
			continue // an hour began meanwhile
		}
		for i, res := range got {
			assert.Equal(t, weir.Allow, res.State)
			assert.EqualValues(t, i+1, res.TotalRequests)
			assert.True(t, res.ExpiresAt.Equal(ends), "%v, want %v", res.ExpiresAt, ends)
		}
		ttl := pttl(t, server.Client(), "weir:calendar:hour@UTC:{a}")
		assert.InDelta(t, time.Until(ends)+redislimit.DefaultGrace, ttl, float64(10*time.Second))
		return
	}
}

// If they differ by more, each call fails, and counts nothing.
func TestCalendarFailsIfTheClocksDifferByMoreThanAWindow(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	r := &weir.Request{Key: "a", Limit: 100}
	taken := mustRun(t, store.Calendar(weir.Hour, nil), r)
	for _, d := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		s := hours(store, d)
		fails := func(what string, err error) {
			assert.ErrorIs(t, err, redislimit.ErrClock, what)
			assert.Equal(t, redislimit.Misconfigured, redislimit.Classify(err), what)
		}
		_, err := s.Run(t.Context(), r)
		fails("Run", err)
		_, err = ops.Peek(t.Context(), s, r)
		fails("Peek", err)
		_, _, err = ops.Admit(t.Context(), s, r)
		fails("Admit", err)
		fails("Charge", ops.Charge(t.Context(), s, r))
		fails("Seed", ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 9, ExpiresAt: taken.ExpiresAt}))
		fails("Refund", ops.Refund(t.Context(), s, r, taken))
		_, err = ops.Reconcile(t.Context(), s, r, &weir.Backlog{Source: "x", Total: 5})
		fails("Reconcile", err)
		_, err = limits.Decide(t.Context(), weir.Ask{Strategy: s, Request: *r},
			weir.Ask{Strategy: hours(store, d), Request: weir.Request{Key: "b", Limit: 1}})
		fails("Decide", err)

		longer := store.Calendar(weir.Month, nil)
		redislimit.SetClock(longer, skewed(d))
		_, err = longer.Run(t.Context(), r)
		assert.NoError(t, err, "a month is longer")
	}
	s := store.Calendar(weir.Hour, nil)
	res, err := ops.Reconcile(t.Context(), s, r, &weir.Backlog{Source: "x", Total: 5})
	require.NoError(t, err)
	if res.ExpiresAt.Equal(taken.ExpiresAt) { // else an hour began meanwhile
		assert.EqualValues(t, 1+5+1, res.TotalRequests,
			"the debt is charged, as no call before has done it")
	}
}

// A process at 12:30 sends the hour of 12:00 and its neighbours: the server counts in each of them
// from its first instant to its last, and an instant before or after fails.
func TestCalendarAtTheEdgesOfTheWindowsThatAreSent(t *testing.T) {
	server := redistest.Start(t)
	eleven := time.Date(2026, 7, 1, 11, 0, 0, 0, time.UTC)
	var now time.Time // of the server
	store := open(t, server.Addr, redislimit.Config{Now: func() time.Time { return now }})
	s := store.Calendar(weir.Hour, nil)
	redislimit.SetClock(s, func() time.Time { return eleven.Add(90 * time.Minute) })
	r := &weir.Request{Key: "a", Limit: 1 << 40} // larger than the instants beside it
	for hour := range time.Duration(3) {
		begins, ends := eleven.Add(hour*time.Hour), eleven.Add((hour+1)*time.Hour)
		for i, at := range []time.Time{begins, ends.Add(-1)} {
			now = at
			res, err := s.Run(t.Context(), r)
			require.NoError(t, err, now)
			assert.EqualValues(t, i+1, res.TotalRequests, now)
			assert.True(t, res.ExpiresAt.Equal(ends), "%v: %v", now, res.ExpiresAt)
		}
	}
	for _, now = range []time.Time{eleven.Add(-1), eleven.Add(3 * time.Hour)} {
		_, err := s.Run(t.Context(), r)
		assert.ErrorIs(t, err, redislimit.ErrClock, now)
	}
}

// One has no control over the clock of a server, but a step of Config.Now is a step of that too: a
// window that the clock returns to has its count, and the one after it keeps its own.
func TestCalendarOnAClockThatStepsBack(t *testing.T) {
	server := redistest.Start(t)
	edge := time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)
	now := edge
	store := open(t, server.Addr, redislimit.Config{Now: func() time.Time { return now }, Grace: -1})
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	s, r := store.Calendar(weir.Hour, berlin), &weir.Request{Key: "a", Limit: 100}
	for i, at := range []time.Duration{-time.Second, time.Second, -time.Second, time.Second} {
		now = edge.Add(at)
		res := mustRun(t, s, r)
		assert.EqualValues(t, i/2+1, res.TotalRequests)
		if i > 0 {
			ttl := pttl(t, server.Client(), "weir:calendar:hour@Europe/Berlin:{a}")
			assert.Greater(t, ttl, 58*time.Minute, "the count of the hour after the edge is kept")
		}
	}
}

func TestCalendarsOnRedisCountApart(t *testing.T) {
	server := redistest.Start(t)
	store, other := open(t, server.Addr, redislimit.Config{}),
		open(t, server.Addr, redislimit.Config{})
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	all := []weir.Counter{
		store.Calendar(weir.Year, nil), store.Calendar(weir.Year.From(229), nil),
		store.Calendar(weir.Year, berlin), store.Calendar(weir.Year.At(6*time.Hour), nil),
		store.Calendar(weir.Year.From(229).At(6*time.Hour), nil),
		store.Calendar(weir.Year, time.FixedZone("*", 60)),
		store.Calendar(weir.Year, time.FixedZone("{*}:{", 60)),
		store.Calendar(weir.Year, time.FixedZone("%7B*", 60)), store.Calendar(weir.Month, nil),
		store.FixedWindow(),
	}
	r := &weir.Request{Key: "a", Limit: 100, Duration: 365 * 24 * time.Hour}
	counts := func(s weir.Strategy, want uint64) {
		t.Helper()
		res := mustRun(t, s, r)
		assert.Equal(t, want, res.TotalRequests)
	}
	for _, s := range all {
		counts(s, 1)
	}
	counts(other.Calendar(weir.Year, berlin), 2)
	counts(other.Calendar(weir.Year.From(101), nil), 2) // the usual day
	for i, s := range all {
		n, err := ops.ResetPrefix(t.Context(), s, "", nil)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		counts(s, 1)
		for _, later := range all[i+1:] {
			res := mustPeek(t, later, r)
			assert.Greater(t, res.TotalRequests, uint64(1), "reset with another")
		}
	}
	assert.Equal(t, 365*24*time.Hour, all[1].About().Window)
	assert.Zero(t, store.FixedWindow().About().Window)
	_, _, ok := all[0].About().Until(r, time.Now())
	assert.False(t, ok, "near.Leases has windows of the Duration")
	assert.Equal(t, "calendar", ops.Name(all[0]))
	for _, u := range []weir.CalendarUnit{
		0, weir.Day.From(1), weir.Day.At(24 * time.Hour), weir.Hour.At(time.Minute),
	} {
		assert.Panics(t, func() { store.Calendar(u, nil) })
	}
}
