package redislimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
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
			_, err := p.local.Peek(t.Context(), r)
			require.NoError(t, err)
			_, err = p.remote.Peek(t.Context(), r)
			require.NoError(t, err)
		}
		a, err := p.local.Run(t.Context(), r)
		require.NoError(t, err)
		b, err := p.remote.Run(t.Context(), r)
		require.NoError(t, err)
		if !same(a, b) {
			differ++
			example = fmt.Sprintf("%v: local %+v, redis %+v", clock.Now(), *a, *b)
		}
	}
	return differ, example
}

// Results differ only as the package comment documents for a clock that steps back: never without
// steps, and not for fixed windows if the steps are shorter than a Duration. Peek makes no
// difference.
func TestClockStepsBack(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	o := redislimit.Options(server.Addr)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, most := range []time.Duration{0, 10 * time.Second} {
		for i := range pairs(t, client, "names", time.Now) {
			clock := weirtest.NewClock(time.Unix(1_700_000_000, 123_456_789))
			p := pairs(t, client, fmt.Sprintf("back %v %d:", most, i), clock.Now)[i]
			differ, example := backSteps(t, p, clock, 1, most)
			if most == 0 || p.name == "FixedWindow" {
				assert.Zero(t, differ, "%s, steps of up to %v: %s", p.name, most, example)
			}
			t.Logf("%s, steps of up to %v: %d of 400 differ", p.name, most, differ)
		}
	}
}

// Peek does not advance a key's clock: a denial stays a denial after a Peek and a step back.
func TestPeekBeforeAStepBack(t *testing.T) {
	o := redislimit.Options(redistest.Start(t).Addr)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	start := time.Unix(1_700_000_000, 0)
	clock := weirtest.NewClock(start)
	for _, p := range pairs(t, client, "peek:", clock.Now) {
		clock.Set(start)
		r := &weir.Request{Key: p.name, Limit: 5, Duration: time.Second, Cost: 5}
		if p.fixed != nil {
			r.Cost = p.fixed[0].Limit
		}
		for who, s := range map[string]interface {
			weir.Strategy
			weir.Peeker
		}{"local": p.local, "redis": p.remote} {
			clock.Set(start)
			res, err := s.Run(t.Context(), r)
			require.NoError(t, err)
			require.True(t, res.Allowed(), "%s, %s", p.name, who)
			clock.Set(start.Add(time.Second))
			_, err = s.Peek(t.Context(), r)
			require.NoError(t, err)
			clock.Set(start.Add(999 * time.Millisecond))
			res, err = s.Run(t.Context(), r)
			require.NoError(t, err)
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
			_, err := test.s.Run(t.Context(), r)
			require.NoError(t, err)
			ttl, err := server.Client().PTTL(t.Context(),
				redislimit.DefaultPrefix+name+":60000:{a}").Result()
			require.NoError(t, err)
			assert.Greater(t, ttl, test.life, "%s at %v", name, now)
		}
	}
}
