package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// patient is a Timeout for tests that do not measure time.
const patient = 5 * time.Second

// hybrids returns strategies on an emptied server, each with a local one behind it.
func hybrids(t testing.TB, server *redistest.Server, addr string) verbtest.Stores {
	return func(now func() time.Time) []weir.Strategy {
		server.Do("flushall")
		o := redislimit.Options(addr)
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		store, err := redislimit.New(c, redislimit.Config{Now: now, Timeout: patient})
		require.NoError(t, err)
		l := newLimiter(t, now)
		var all []weir.Strategy
		for _, pair := range [][2]weir.Strategy{
			{store.FixedWindow(), l.FixedWindow()}, {store.SlidingWindow(), l.SlidingWindow()},
			{store.TokenBucket(0), l.TokenBucket(0)}, {store.SlidingLog(), l.SlidingLog()},
			{store.Counter(), l.Counter()},
			{store.List(), l.List()}, {store.Calendar(weir.Hour, nil), l.Calendar(weir.Hour, nil)},
			{verbtest.Tiers(store), verbtest.Tiers(l)},
		} {
			f := newFallback(t, pair[0], pair[1], fallback.Config{Now: now, Timeout: patient})
			all = append(all, f)
		}
		return all
	}
}

func TestDecideEqualsItsModel(t *testing.T) {
	server := redistest.Start(t)
	source := hybrids(t, server, server.Addr)
	for seed := range uint64(3) {
		require.NoError(t, verbtest.Decisions(source, limits.Decide, true, seed, 1000), "seed %d", seed)
	}
	assert.Error(t, verbtest.Decisions(source, verbtest.DecideForgetfully, true, 1, 1000))
}

func TestDecideConcurrently(t *testing.T) {
	server := redistest.Start(t)
	source := hybrids(t, server, server.Addr)
	require.NoError(t, verbtest.Concurrently(source, limits.Decide, 20))
	assert.Error(t, verbtest.Concurrently(source, verbtest.DecideForgetfully, 20))
}

// Limits through fallback take the round trips of those without: one, and one more for a denial. In
// an outage each is decided locally, and what local admitted and gave back is not charged.
func TestDecideTakesOneRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	strategies, ctx := hybrids(t, server, proxy.Addr)(nil), context.Background()
	asks := func(key string, limits ...uint64) (asks []weir.Ask) {
		for i, limit := range limits {
			asks = append(asks, weir.Ask{Strategy: strategies[i], Request: weir.Request{
				Key: key, Limit: limit, Duration: time.Hour}})
		}
		return asks
	}
	for range 3 { // dials, and uploads the scripts
		_, err := limits.Decide(ctx, asks("another", 5, 5, 1)...)
		require.NoError(t, err)
	}
	for want := range 3 {
		proxy.Forget()
		d, err := limits.Decide(ctx, asks("a", 5, 5, 1)...)
		require.NoError(t, err)
		assert.Equal(t, want == 0, d.Allowed())
		assert.Equal(t, min(1+want, 2), proxy.Trips())
	}
	count := func(s weir.Strategy) uint64 {
		res, err := ops.Peek(ctx, s, &weir.Request{Key: "a", Limit: 5, Duration: time.Hour})
		require.NoError(t, err)
		return res.TotalRequests - 1
	}
	assert.EqualValues(t, 1, count(strategies[0]), "denials took nothing")

	server.Kill()
	d, err := limits.Decide(ctx, asks("a", 5, 5, 1)...)
	require.NoError(t, err)
	assert.False(t, d.Allowed(), "the third was used up before the outage")
	d, err = limits.Decide(ctx, asks("a", 5, 5)...)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	server.Restart()
	assert.Eventually(t, func() bool {
		_, by, err := runSource(ctx, strategies[0].(*fallback.Fallback),
			&weir.Request{Key: "b", Limit: 5, Duration: time.Hour})
		return err == nil && by == weir.FromPrimary
	}, 30*time.Second, 10*time.Millisecond)
	d, err = limits.Decide(ctx, asks("a", 5, 5)...)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	assert.EqualValues(t, 3, count(strategies[0]), "two before and in the outage, and this one")
}
