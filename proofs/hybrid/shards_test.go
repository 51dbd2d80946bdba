package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// When one of three shards fails, breakers for each shard keep the others on primary. With a single
// breaker, the control, most of their requests are decided locally too.
func TestShardsFailAlone(t *testing.T) {
	slow.Test(t)
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	o := redislimit.Options("")
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), MaxRedirects: 3, MaxRetries: o.MaxRetries, ContextTimeoutEnabled: true,
		Dialer:        o.Dialer,
		DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout,
		DialTimeout: o.DialTimeout,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
		DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	const timeout = time.Second // only a dead shard exceeds it, even on a busy machine
	store, err := redislimit.New(client, redislimit.Config{Timeout: timeout})
	require.NoError(t, err)
	make := func(partition func(string) string) *fallback.Fallback {
		l := newLimiter(t, nil)
		f := newFallback(t, store.FixedWindow(), l.FixedWindow(), fallback.Config{
			Partition: partition, Timeout: timeout, MinCalls: 3, FailureRate: 0.2,
			Interval:      10 * time.Second,
			Stall:         -1,
			ProbeInterval: 200 * time.Millisecond, IsDown: isDown,
		})
		return f
	}
	shard := redislimit.Shard(client)
	redistest.Eventually(t, 10*time.Second, "the client knows the Cluster",
		func() bool { return shard("a") != "" })
	dead := cluster.Nodes[0]
	perShard, one := make(shard), make(nil)
	round := func(f *fallback.Fallback) (healthy, primary int) {
		for k := range 300 {
			r := weir.Request{Key: fmt.Sprint("caller ", k), Limit: 1000, Duration: 24 * time.Hour}
			if shard(r.Key) == dead.Addr {
				ask(t, f, r)
				continue
			}
			healthy++
			if _, by := ask(t, f, r); by == weir.FromPrimary {
				primary++
			}
		}
		return healthy, primary
	}
	healthy, primary := round(perShard)
	require.Equal(t, healthy, primary)
	require.InDelta(t, 200, healthy, 50, "a third of the keys belong to the shard that will fail")
	dead.Kill()
	round(perShard) // opens the breaker
	healthy, primary = round(perShard)
	assert.Equal(t, healthy, primary)
	assert.Equal(t, 1, perShard.Stats().OpenPartitions)
	round(one)
	healthy, primary = round(one)
	t.Logf("with one breaker %d of %d healthy decisions come from primary", primary, healthy)
	assert.Less(t, primary, healthy*9/10, "the control")

	dead.Restart()
	redistest.Eventually(t, 30*time.Second, "the shard decides again", func() bool {
		round(perShard)
		return perShard.Stats().OpenPartitions == 0
	})
}

// The breaker opens for a frozen server even if the callers' deadlines are shorter than twice
// Timeout, and behind a lease.
func TestFrozenServerOpensTheBreaker(t *testing.T) {
	for name, row := range map[string]struct {
		deadline time.Duration
		front    []func(weir.Strategy) weir.Strategy
	}{
		"short deadlines": {80 * time.Millisecond, nil},
		"a lease":         {time.Hour, []func(weir.Strategy) weir.Strategy{leases(10)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			h := hybridAt(t, b.server.Addr, fallback.Config{}, row.front...)
			warmUp(t, h)
			b.server.Freeze()
			defer b.server.Thaw()
			calls := 0
			for start := time.Now(); h.Stats().State == fallback.Closed; calls++ {
				require.Less(t, time.Since(start), 20*time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
				r := day
				_, err := h.Run(ctx, &r)
				cancel()
				if row.deadline > time.Minute { // a short deadline may pass on a busy machine
					require.NoError(t, err)
				}
			}
			t.Logf("open after %d calls", calls)
			assert.Less(t, calls, 200)
			for range 100 {
				_, by := ask(t, h, day)
				require.NotEqual(t, weir.FromPrimary, by)
			}
		})
	}
}

// After a flood of keys that are used once, a regular key still gets a lease, and its debts of an
// outage are charged.
func TestFloodOfKeys(t *testing.T) {
	b := newBench(t)
	var l *near.Leases
	cfg := fallback.Config{MaxCallers: 320, Timeout: 5 * time.Second, MinCalls: 1, Stall: -1,
		ProbeInterval: 50 * time.Millisecond}
	h := hybridAt(t, b.proxy.Addr, cfg, func(s weir.Strategy) weir.Strategy {
		l = near.NewLeases(s, near.LeaseConfig{Block: 10, Keys: 320})
		return l
	})
	for n := range 1000 {
		ask(t, h, weir.Request{Key: fmt.Sprint(n), Limit: 1000, Duration: 24 * time.Hour})
	}
	regular := weir.Request{Key: "regular", Limit: 1000, Duration: 24 * time.Hour}
	before := l.Stats()
	for range 100 {
		ask(t, h, regular)
	}
	assert.EqualValues(t, 10, l.Stats().Fetched-before.Fetched)
	b.proxy.Refuse(true)
	local := 0
	for range 50 {
		if _, by := ask(t, h, regular); by == weir.FromLocal {
			local++
		}
	}
	assert.Equal(t, 50, local)
	assert.Zero(t, h.Stats().Dropped)
	b.proxy.Refuse(false)
	redistest.Eventually(t, 10*time.Second, "primary decides", func() bool {
		_, by := ask(t, h, regular)
		if by == weir.FromLocal {
			local++
		}
		return by == weir.FromPrimary
	})
	assert.EqualValues(t, local, h.Stats().Reconciled)
}

// While replies are lost, every debt is charged once, plus at most one hit for each lost reply.
func TestLostReplies(t *testing.T) {
	for _, name := range []string{"fixed window", "token bucket"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			store := storeAt(t, b.proxy.Addr, redislimit.Config{Timeout: 5 * time.Second})
			l := newLimiter(t, nil)
			primary, local := weir.Strategy(store.FixedWindow()), weir.Strategy(l.FixedWindow())
			if name == "token bucket" {
				primary, local = store.TokenBucket(0), l.TokenBucket(0)
			}
			f := newFallback(t, primary, local,
				fallback.Config{Timeout: 5 * time.Second, MinCalls: 1 << 30,
					IsDown: isDown})
			r := weir.Request{Key: "a", Limit: 1000, Duration: 24 * time.Hour}
			ask(t, f, r)
			repair := act(redistest.LoseReply)(t, b)
			const lost = 60
			for range lost {
				_, by := ask(t, f, r)
				require.Equal(t, weir.FromLocal, by)
			}
			repair()
			res, by := ask(t, f, r)
			assert.Equal(t, weir.FromPrimary, by)
			assert.LessOrEqual(t, res.TotalRequests, uint64(1+lost+lost+1),
				"the admitted, and one for each lost reply")
			assert.GreaterOrEqual(t, res.TotalRequests, uint64(1+lost+1))
		})
	}
}
