package redislimit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// backSteps runs a trace whose clock sometimes steps back by at most most, and returns the number
// of differing Results and an example.
func backSteps(t *testing.T, p pair, clock *weirtest.Clock, seed uint64,
	most time.Duration) (differ int, example string) {
	rng := rand.New(rand.NewPCG(seed, 15))
	d, limit := time.Minute, uint64(20)
	if p.fixed != nil {
		d, limit = p.fixed[2].Duration, p.fixed[0].Limit
	}
	for range 400 {
		if rng.IntN(20) == 0 {
			clock.Set(clock.Now().Add(-time.Duration(rng.Int64N(int64(most) + 1))))
		} else {
			clock.Advance(time.Duration(rng.Int64N(int64(d) / 10)))
		}
		r := &weir.Request{Key: "a", Limit: limit, Duration: d, Cost: rng.Uint64N(4)}
		if rng.IntN(10) == 0 {
			mustPeek(t, p.local, r)
			mustPeek(t, p.remote, r)
		}
		a := mustRun(t, p.local, r)
		b := mustRun(t, p.remote, r)
		if !same(a, b) {
			differ++
			example = fmt.Sprintf("%v: local %+v, redis %+v", clock.Now(), *a, *b)
		}
	}
	return differ, example
}

// Results differ only as the package comment documents for a clock that steps back: never without
// steps, not of a TokenBucket, Counter, List and SlidingWindow, and not for fixed windows if the
// steps are shorter than a Duration. Peek makes no difference.
func TestClockStepsBack(t *testing.T) {
	slow.Test(t)
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	for _, most := range []time.Duration{0, 10 * time.Second} {
		for i := range pairs(t, client, "names", time.Now) {
			clock := weirtest.NewClock(time.Unix(1_700_000_000, 123_456_789))
			p := pairs(t, client, fmt.Sprintf("back %v %d:", most, i), clock.Now)[i]
			differ, example := backSteps(t, p, clock, 1, most)
			differing := []string{"SlidingLog", "InFlight", "SortedSet", "Tiers"}
			if most == 0 || !slices.Contains(differing, p.name) {
				assert.Zero(t, differ, "%s, steps of up to %v: %s", p.name, most, example)
			}
			t.Logf("%s, steps of up to %v: %d of 400 differ", p.name, most, differ)
		}
	}
}

// Peek does not advance a key's clock: a denial stays a denial after a Peek and a step back.
func TestPeekBeforeAStepBack(t *testing.T) {
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	start := time.Unix(1_700_000_000, 0)
	clock := weirtest.NewClock(start)
	for _, p := range pairs(t, client, "peek:", clock.Now) {
		clock.Set(start)
		r := &weir.Request{Key: p.name, Limit: 5, Duration: time.Second, Cost: 5}
		if p.fixed != nil {
			r.Cost = p.fixed[0].Limit
		}
		for who, s := range map[string]weir.Counter{"local": p.local, "redis": p.remote} {
			clock.Set(start)
			res := mustRun(t, s, r)
			require.True(t, res.Allowed(), "%s, %s", p.name, who)
			clock.Set(start.Add(time.Second))
			mustPeek(t, s, r)
			clock.Set(start.Add(999 * time.Millisecond))
			res = mustRun(t, s, r)
			assert.False(t, res.Allowed(), "%s, %s", p.name, who)
		}
	}
}

// A clock that steps back into the previous window does not shorten the life of the next window's
// count, which would admit twice the limit in it.
func TestStepBackKeepsTheNextWindow(t *testing.T) {
	server := redistest.Start(t)
	edge := time.Unix(1_700_000_040, 0) // of a minute
	clock := weirtest.NewClock(edge)
	store := open(t, server.Addr, redislimit.Config{Now: clock.Now, Grace: -1})
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	for name, test := range map[string]struct {
		s    weir.Strategy
		life time.Duration
	}{
		"fixed":   {store.FixedWindow(), 50 * time.Second},
		"sliding": {store.SlidingWindow(), 110 * time.Second},
	} {
		for _, now := range []time.Time{edge.Add(time.Second), edge.Add(-time.Second)} {
			clock.Set(now)
			mustRun(t, test.s, r)
			ttl := pttl(t, server.Client(), redislimit.DefaultPrefix+name+":60000:{a}")
			assert.Greater(t, ttl, test.life, "%s at %v", name, now)
		}
	}
}

// A key stays at the latest instant at which it was used, or at the beginning of its latest window,
// on a clock that steps back, in memory as on Redis. A bucket never misses more tokens than its
// burst.
func TestAKeyStaysAtItsLatestUse(t *testing.T) {
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	start := time.Unix(1_700_000_040, 0) // of a minute
	clock := weirtest.NewClock(start)
	const s = time.Second
	for i, row := range []struct {
		name, strategy string
		limit          uint64
		length         time.Duration
		steps          []stepBack
	}{
		{"a bucket has a token left", "TokenBucket", 2, 2 * s, []stepBack{
			{100 * s, true, 1, 101 * s}, {50 * s, true, 2, 102 * s}, {50 * s, false, 2, 101 * s},
			{0, false, 2, 101 * s}, {101 * s, true, 2, 103 * s}}},
		{"a bucket was used before", "TokenBucket", 2, 2 * s, []stepBack{
			{0, true, 1, s}, {100 * s, true, 1, 101 * s}, {50 * s, true, 2, 102 * s},
			{99 * s, false, 2, 101 * s}, {101*s - 1, false, 2, 101 * s}, {101 * s, true, 2, 103 * s}}},
		{"a bucket has a burst", "TokenBucket of 5", 2, 2 * s, []stepBack{
			{100 * s, true, 1, 101 * s}, {50 * s, true, 2, 102 * s}, {99 * s, true, 3, 103 * s},
			{100 * s, true, 4, 104 * s}, {0, true, 5, 105 * s}, {1 * s, false, 5, 101 * s}}},
		{"a period goes on", "Counter", 2, 2 * s, []stepBack{
			{100 * s, true, 1, 102 * s}, {50 * s, true, 2, 102 * s}, {50 * s, false, 2, 102 * s},
			{102 * s, true, 1, 104 * s}}},
		{"a period was before", "Counter", 2, 2 * s, []stepBack{
			{0, true, 1, 2 * s}, {100 * s, true, 1, 102 * s}, {0, true, 2, 102 * s}}},
		{"the latest window goes on", "SlidingWindow", 2, 60 * s, []stepBack{
			{100 * s, true, 1, 180 * s}, {50 * s, true, 2, 180 * s}, {50 * s, false, 2, 150 * s},
			{130 * s, false, 2, 150 * s}, {150 * s, true, 2, 240 * s}}},
		{"the window before counts as at its start", "SlidingWindow", 4, 60 * s, []stepBack{
			{0, true, 1, 120 * s}, {0, true, 2, 120 * s}, {90 * s, true, 2, 180 * s},
			{30 * s, true, 4, 180 * s}, {30 * s, false, 4, 90 * s}}},
		{"many windows back", "SlidingWindow", 2, 2 * s, []stepBack{
			{0, true, 1, 4 * s}, {100 * s, true, 1, 104 * s}, {50 * s, true, 2, 104 * s},
			{0, false, 2, 103 * s}}},
	} {
		for _, p := range pairs(t, client, fmt.Sprintf("latest %d:", i), clock.Now) {
			if p.name != row.strategy {
				continue
			}
			for n, step := range row.steps {
				clock.Set(start.Add(step.at))
				for who, s := range map[string]weir.Counter{"in memory": p.local, "on Redis": p.remote} {
					res, err := s.Run(t.Context(), &weir.Request{Key: "a", Limit: row.limit, Duration: row.length})
					require.NoError(t, err)
					got := stepBack{step.at, res.Allowed(), res.TotalRequests, res.ExpiresAt.Sub(start)}
					assert.Equal(t, step, got, "%s, step %d, %s", row.name, n, who)
				}
			}
		}
	}
}

// stepBack is a call of Run at an instant, and its Result.
type stepBack struct {
	at      time.Duration
	allowed bool
	total   uint64
	expires time.Duration
}
