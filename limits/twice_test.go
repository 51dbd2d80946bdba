package limits_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
)

// pairs are pairs of limits, and whether they are on one count.
func pairs(t *testing.T) map[string]struct {
	one, other *weir.Limit
	same       bool
} {
	l, second := standing(t), standing(t)
	limit := func(s weir.Strategy, n uint64) *weir.Limit {
		m, err := weir.NewLimit(s, n, time.Minute)
		require.NoError(t, err)
		return m
	}
	tiers := func(d time.Duration) *weir.Limit {
		return mustTiers(t, l, weir.Tier{Limit: 8, Duration: d}).Limit()
	}
	guarded, err := fallback.New(second.FixedWindow(), l.FixedWindow(), fallback.Config{Instances: 1})
	require.NoError(t, err)
	leased := near.NewLeases(second.SlidingWindow(), near.LeaseConfig{})
	// one of a user's own is equal to itself only
	own, another := ops.Around(l.FixedWindow()), ops.Around(l.FixedWindow())
	m, named := l.FixedWindow().Limit(8, time.Minute), l.FixedWindow().Limit(8, time.Minute).Named("n")
	type pair = struct {
		one, other *weir.Limit
		same       bool
	}
	return map[string]pair{
		"one limit":             {m, m, true},
		"equal limits":          {m, l.FixedWindow().Limit(8, time.Minute), true},
		"one that is fail-open": {m, m.FailOpen(), true},
		"another number":        {m, l.FixedWindow().Limit(9, time.Minute), false},
		"another duration":      {m, l.FixedWindow().Limit(8, time.Hour), false},
		"another strategy":      {m, l.SlidingWindow().Limit(8, time.Minute), false},
		"another limiter":       {m, second.FixedWindow().Limit(8, time.Minute), false},
		"a name":                {m, named, false},
		"equal names":           {named, m.Named("n"), true},
		"a name of two numbers": {named, l.FixedWindow().Limit(9, time.Minute).Named("n"), true},
		"a name of two windows": {named, l.FixedWindow().Limit(9, time.Hour).Named("n"), false},
		"a name of a bucket that keeps its count": {l.TokenBucket(0).Limit(8, time.Minute).Named("b"),
			l.TokenBucket(9).Limit(90, time.Hour).Named("b"), true},
		"two bursts":             {l.TokenBucket(5).Limit(8, time.Minute), l.TokenBucket(6).Limit(8, time.Minute), false},
		"leaky buckets":          {l.LeakyBucket(2).Limit(8, time.Minute), l.LeakyBucket(2).Limit(8, time.Minute), true},
		"equal tiers":            {tiers(time.Minute), tiers(time.Minute), true},
		"tiers of two durations": {tiers(time.Minute), tiers(time.Hour), false},
		"calendars":              {l.Calendar(weir.Day, nil).Limit(8), l.Calendar(weir.Day, nil).Limit(8), true},
		"two calendars":          {l.Calendar(weir.Day, nil).Limit(8), l.Calendar(weir.Hour, nil).Limit(8), false},
		"in flight":              {l.InFlight().Limit(8), l.InFlight().Limit(8), true},
		"behind a fallback":      {limit(guarded, 8), limit(guarded, 8), true},
		"two numbers behind one": {limit(guarded, 8), limit(guarded, 9), false},
		"two names behind one":   {limit(guarded, 8).Named("a"), limit(guarded, 8).Named("b"), false},
		"a name of two numbers behind one": {limit(guarded, 8).Named("a"), limit(guarded, 9).Named("a"),
			true},
		"near":                {limit(leased, 8), limit(leased, 8), true},
		"a user's own":        {limit(own, 8), limit(own, 8), true},
		"two of a user's own": {limit(own, 8), limit(another, 8), false},
	}
}

// One count that is asked twice for one request is a mistake of the program.
func TestNoCountIsAskedTwice(t *testing.T) {
	for what, tt := range pairs(t) {
		t.Run(what, func(t *testing.T) {
			all := func() { limits.All(tt.one, tt.other) }
			_, decided := limits.Decide(t.Context(), tt.one.For("k"), tt.other.For("k").Cost(2))
			_, reserved := limits.Reserve(t.Context(), tt.one.For("k"), tt.other.For("k"))
			if !tt.same {
				assert.NotPanics(t, all)
				assert.NotErrorIs(t, decided, weir.ErrLimit)
				assert.NotErrorIs(t, reserved, weir.ErrLimit)
				return
			}
			require.ErrorIs(t, decided, weir.ErrLimit)
			assert.ErrorContains(t, decided, ".Named(…)")
			assert.ErrorContains(t, decided, fmt.Sprintf("%v and %v", tt.one, tt.other))
			assert.ErrorIs(t, reserved, weir.ErrLimit)
			assert.Panics(t, all)
			_, decided = limits.Decide(t.Context(), limits.All(tt.one).For("k"), tt.other.For("k"))
			require.ErrorIs(t, decided, weir.ErrLimit)
			_, other := limits.Decide(t.Context(), tt.one.For("ann"), tt.other.For("bob"))
			assert.NotErrorIs(t, other, weir.ErrLimit, "two keys have two counts")
		})
	}
}

// An All is on the counts of all its limits.
func TestNoCountOfAnAllIsAskedTwice(t *testing.T) {
	l := standing(t)
	m := l.FixedWindow().Limit(8, time.Minute)
	both, jobs := limits.All(m, m.Named("n")), l.InFlight().Limit(3)
	_, err := limits.Decide(t.Context(), both.For("k"), limits.All(jobs, m).For("k"))
	require.ErrorIs(t, err, weir.ErrLimit)
	assert.ErrorContains(t, err, fmt.Sprintf("%v and %v", both, limits.All(jobs, m)))
	_, err = limits.Reserve(t.Context(), limits.All(jobs, m).For("k"), both.For("k"))
	require.ErrorIs(t, err, weir.ErrLimit)
	_, err = limits.Decide(t.Context(), both.For("k"), limits.All(jobs).For("k"))
	assert.NotErrorIs(t, err, weir.ErrLimit)
	_, err = limits.Decide(t.Context(), both.For("ann"), limits.All(jobs, m).For("bob"))
	assert.NotErrorIs(t, err, weir.ErrLimit)
}

// Asks of strategies are on one count if the strategy, the key and the numbers are equal.
func TestNoStrategyIsAskedTwice(t *testing.T) {
	l := standing(t)
	plain := &struct{ weir.Strategy }{l.FixedWindow()} // which cannot give back
	for what, tt := range map[string]struct {
		one, other weir.Ask
		same       bool
	}{
		"equal, decided last": {ask(plain, "a", 5, 1), ask(plain, "a", 5, 1), true},
		"equal":               {ask(l.FixedWindow(), "a", 5, 1), ask(l.FixedWindow(), "a", 5, 2), true},
		"two keys":            {ask(l.FixedWindow(), "a", 5, 1), ask(l.FixedWindow(), "b", 5, 1), false},
		"two limits":          {ask(l.FixedWindow(), "a", 5, 1), ask(l.FixedWindow(), "a", 6, 1), false},
		"two strategies":      {ask(l.FixedWindow(), "a", 5, 1), ask(l.SlidingWindow(), "a", 5, 1), false},
		"a limit's counts":    {ask(l.FixedWindow(), "a", 5, 1), l.FixedWindow().Limit(5, time.Minute).For("a"), false},
	} {
		_, err := limits.Decide(t.Context(), tt.one, tt.other)
		if tt.same {
			assert.ErrorIs(t, err, weir.ErrLimit, what)
		} else {
			assert.NoError(t, err, what)
		}
	}
}

// Of many asks, too, and nothing is counted then.
func TestNoCountIsAskedTwiceOfMany(t *testing.T) {
	m := standing(t).FixedWindow().Limit(8, time.Minute)
	var asks []weir.Ask
	for i := range 100 {
		asks = append(asks, m.For(strconv.Itoa(i)))
	}
	_, err := limits.Decide(t.Context(), asks...)
	require.NoError(t, err)
	asks[90].Request.Key = "7"
	_, err = limits.Decide(t.Context(), asks...)
	require.ErrorIs(t, err, weir.ErrLimit)
	assert.ErrorContains(t, err, "7 and 90")
	_, err = limits.Decide(t.Context(), limits.All(m, m.Named("n")).For("7"), m.For("7"))
	require.ErrorIs(t, err, weir.ErrLimit)
	out, err := m.Peek(t.Context(), "7")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests)
}

// countless is a refundable that does not say where it counts.
type countless struct{ refundable }

func (s *countless) About() *weir.About {
	a := *s.refundable.About()
	a.Of, a.Counts = s, nil
	return &a
}

func TestCountsThatAreNotKnownMayBeTwo(t *testing.T) {
	s := &countless{refundable{result: weir.Result{State: weir.Allow}}}
	out, err := limits.Decide(t.Context(), ask(s, "a", 5, 1), ask(s, "a", 5, 1))
	require.NoError(t, err)
	assert.True(t, out.Allowed())
}
