package redislimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// source returns strategies that count in an emptied server.
func source(t testing.TB, server *redistest.Server) verbtest.Stores {
	return func(now func() time.Time) []weir.Strategy {
		server.Do("flushall")
		s := open(t, server.Addr, redislimit.Config{Now: now})
		return []weir.Strategy{s.FixedWindow(), s.SlidingWindow(), s.TokenBucket(0), s.SlidingLog(),
			s.Counter(), s.List(), s.Calendar(weir.Hour, nil), verbtest.Tiers(s)}
	}
}

func TestDecideEqualsItsModel(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(3) {
		require.NoError(t, verbtest.Decisions(source(t, server), limits.Decide, true, seed, 1000),
			"seed %d", seed)
	}
	assert.Error(t, verbtest.Decisions(source(t, server), verbtest.DecideForgetfully, true, 1, 1000))
}

func TestDecideConcurrently(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, verbtest.Concurrently(source(t, server), limits.Decide, 20))
	assert.Error(t, verbtest.Concurrently(source(t, server), verbtest.DecideForgetfully, 20))
	assert.Error(t, verbtest.Concurrently(source(t, server), verbtest.DecideHastily, 20))
}

// Several limits on one Store take one round trip, and a denial that gives something back one more.
func TestDecideTakesOneRoundTrip(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s, ctx := open(t, proxy.Addr, redislimit.Config{}), context.Background()
	tiers := s.Tiers(weir.Tier{Limit: 5, Duration: time.Minute})
	ask := func(s weir.Strategy, limit uint64) weir.Ask {
		return weir.Ask{Strategy: s, Request: weir.Request{Key: "a", Limit: limit, Duration: time.Minute}}
	}
	limit := func(n uint64) *weir.Limit {
		m, err := weir.NewLimit(s.FixedWindow(), n, time.Minute)
		require.NoError(t, err)
		return m
	}
	for name, asks := range map[string][]weir.Ask{
		"windows": {ask(s.FixedWindow(), 1), ask(s.SlidingWindow(), 5), ask(s.TokenBucket(0), 5),
			ask(s.Calendar(weir.Month, nil), 5)},
		"logs":   {ask(s.SlidingLog(), 5), ask(s.List(), 5), ask(tiers, 5), ask(s.Counter(), 1)},
		"limits": {limit(1).For("a"), limit(9).For("a")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range asks { // dial, and upload the scripts
				a.Request.Key = "another"
				two := a
				two.Request.Key = "a third one"
				for range 2 {
					_, err := limits.Decide(ctx, a, two)
					require.NoError(t, err)
				}
				r := &weir.Request{Key: "another", Limit: 5, Duration: time.Minute}
				taken := &weir.Result{State: weir.Allow, ExpiresAt: time.Now().Add(time.Minute)}
				if m, ok := a.Strategy.(*weir.Limit); ok {
					a.Strategy = weir.CounterOf(m)
				}
				require.NoError(t, ops.Refund(ctx, a.Strategy, r, taken))
			}
			for _, want := range []struct {
				allowed bool
				trips   int
			}{{true, 1}, {false, 2}, {false, 2}} {
				proxy.Forget()
				d, err := limits.Decide(ctx, asks...)
				require.NoError(t, err)
				assert.Equal(t, want.allowed, d.Allowed())
				assert.Equal(t, want.trips, proxy.Trips())
			}
		})
	}
	all := limits.All(limit(2), limit(3), limit(4))
	proxy.Forget()
	res := mustRun(t, all, &weir.Request{Key: "a"})
	assert.True(t, res.Allowed())
	assert.Equal(t, 1, proxy.Trips(), "All")
	proxy.Forget()
	_, err := all.Peek(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, 1, proxy.Trips(), "Peek of All")
}

// Peeks take one round trip, and costs that are known afterwards one to count, and one more to
// charge what is over its limit.
func TestLooksAndChargesTakeOneRoundTrip(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s, ctx := open(t, proxy.Addr, redislimit.Config{}), context.Background()
	trips := func(key string, set func(l *limits.Attempt)) int {
		var attempts limits.Attempts
		for i := range 3 {
			l := limits.NewAttempt(s.FixedWindow())
			l.Op.Request = weir.Request{Key: key + fmt.Sprint(i), Limit: 10, Cost: 8, Duration: time.Hour}
			set(&l)
			attempts = append(attempts, l)
		}
		proxy.Forget()
		_, err := attempts.Take(ctx, nil)
		require.NoError(t, err)
		return proxy.Trips()
	}
	look, after := func(l *limits.Attempt) { l.Look = true }, func(l *limits.Attempt) { l.Afterwards = true }
	for range 2 { // the first uploads the scripts
		trips("warm", look)
		trips("warm", after)
	}
	assert.Equal(t, 1, trips("a", look))
	assert.Equal(t, 1, trips("a", after))
	assert.Equal(t, 2, trips("a", after))
	res := mustPeek(t, s.FixedWindow(), &weir.Request{Key: "a0", Limit: 99, Duration: time.Hour})
	assert.EqualValues(t, 17, res.TotalRequests)
}

// Work in flight is held, and not only counted, beside a limit that could decide in the same round
// trip.
func TestWorkInFlightIsHeldBesideALimit(t *testing.T) {
	s := open(t, redistest.Start(t).Addr, redislimit.Config{})
	held, err := limits.NewAttempt(s.InFlight()).Holding()
	require.NoError(t, err)
	attempts := limits.Attempts{limits.NewAttempt(s.FixedWindow()), held}
	for i := range attempts {
		attempts[i].Op.Request = weir.Request{Key: "a", Limit: 1, Duration: time.Hour}
	}
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, allowed)
	place := attempts[1].TakeHeld()
	require.NotNil(t, place)
	require.NoError(t, place.Release(t.Context()))
	res := mustPeek(t, s.InFlight(), &attempts[1].Op.Request)
	assert.True(t, res.Allowed(), "the place is free again")
}

// One limit costs no more allocations than its Run does, but one for the Limit.
func TestOneLimitNeedsNoPipeline(t *testing.T) {
	s, ctx := open(t, redistest.Start(t).Addr, redislimit.Config{}).FixedWindow(), context.Background()
	attempts := limits.Attempts{limits.NewAttempt(s)}
	attempts[0].Op.Request = weir.Request{Key: "a", Limit: 1 << 40, Duration: time.Hour}
	run := testing.AllocsPerRun(500, func() {
		_, err := s.Run(ctx, &attempts[0].Op.Request)
		require.NoError(t, err)
	})
	take := testing.AllocsPerRun(500, func() {
		_, err := attempts.Take(ctx, nil)
		require.NoError(t, err)
	})
	assert.LessOrEqual(t, take, run)
}

// A pipeline is sent once, whatever the client's settings are: what was lost may be counted, once.
func TestDecideIsNotRetried(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	o := redislimit.Options(proxy.Addr)
	o.MaxRetries = 3
	s := storeOn(t, dial(t, o), redislimit.Config{Timeout: generous, AllowUnsafeClient: true})
	asks := []weir.Ask{
		{Strategy: s.FixedWindow(), Request: weir.Request{Key: "a", Limit: 5, Duration: time.Hour}},
		{Strategy: s.SlidingLog(), Request: weir.Request{Key: "a", Limit: 5, Duration: time.Hour}},
	}
	_, err := limits.Decide(context.Background(), asks...)
	require.NoError(t, err)
	proxy.OnCommand(func(words []string) redistest.Action {
		if words[0] == "evalsha" {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	proxy.Forget()
	_, err = limits.Decide(context.Background(), asks...)
	require.Error(t, err)
	proxy.OnCommand(nil)
	for _, a := range asks {
		res := mustPeek(t, a.Strategy, &a.Request)
		assert.LessOrEqual(t, res.TotalRequests, uint64(3))
	}
}

// Ops that go together are done in order, those of more than one round trip too.
func TestBatchIsDoneInOrder(t *testing.T) {
	s := open(t, redistest.Start(t).Addr, redislimit.Config{}).FixedWindow()
	r := weir.Request{Key: "a", Limit: 5, Duration: 365 * 24 * time.Hour}
	take, reset, again := &weir.Op{Request: r}, &weir.Op{Verb: weir.OpResetPrefix}, &weir.Op{Request: r}
	s.Do(t.Context(), []*weir.Op{take, reset, again})
	for _, op := range []*weir.Op{take, reset, again} {
		require.NoError(t, op.Err)
		assert.EqualValues(t, 1, op.Result.TotalRequests)
	}
}

func TestBatchOfBadRequests(t *testing.T) {
	s := open(t, redistest.Start(t).Addr, redislimit.Config{})
	good := weir.Ask{Strategy: s.FixedWindow(),
		Request: weir.Request{Key: "a", Limit: 5, Duration: time.Minute}}
	for want, bad := range map[error]weir.Request{
		weir.ErrID: {Limit: 5, Duration: time.Minute}, weir.ErrScale: {Key: "a", Limit: 5},
	} {
		_, err := limits.Decide(context.Background(), good,
			weir.Ask{Strategy: s.SlidingLog(), Request: bad})
		require.ErrorIs(t, err, want)
	}
	res := mustPeek(t, s.FixedWindow(), &good.Request)
	assert.EqualValues(t, 1, res.TotalRequests, "what was taken was given back")

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := limits.Decide(ended, good, weir.Ask{Strategy: s.SlidingLog(), Request: good.Request})
	require.ErrorIs(t, err, context.Canceled)
}
