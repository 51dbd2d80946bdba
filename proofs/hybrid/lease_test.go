package hybrid_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
)

// leases returns a function that adds a lease with the given block size for three instances.
func leases(block int) func(weir.Strategy) weir.Strategy {
	return func(s weir.Strategy) weir.Strategy {
		return near.NewLeases(s, near.LeaseConfig{Block: block, Instances: 3})
	}
}

// Three instances with leases on a real Redis admit exactly the limit in the end, with a fraction
// of the round trips.
func TestLease(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	const limit = 10_000
	var fleet []*fallback.Fallback
	for range 3 {
		// The timeout is not under test, and the machine may be busy.
		fleet = append(fleet, hybridAt(t, b.proxy.Addr,
			fallback.Config{Instances: 3, Timeout: 5 * time.Second},
			leases(100)))
	}
	ask(t, fleet[0], day) // connects and loads the script
	b.proxy.Forget()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for {
				r := weir.Request{Key: "leased", Limit: limit, Duration: 24 * time.Hour}
				res, by, err := runSource(context.Background(), fleet[i%3], &r)
				if !assert.NoError(t, err) || by == weir.FromLocal || !res.Allowed() {
					return
				}
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	seen := b.proxy.Seen()
	trips := seen["evalsha"] + seen["eval"]
	t.Logf("%d admitted in %d round trips", admitted.Load(), trips)
	assert.LessOrEqual(t, admitted.Load(), int64(limit))
	assert.GreaterOrEqual(t, admitted.Load(), int64(limit-100))
	assert.Less(t, trips, limit/20)
}

// Windows end while hits of them are leased: no such hit is used in the next window.
func TestLeaseOverManyWindows(t *testing.T) {
	slow.Test(t)
	b := newBench(t)
	const limit, window = 500, 200 * time.Millisecond
	var mu sync.Mutex
	counts := map[time.Time]int{} // guarded by mu; by the server's clock, which is also this process's
	var all sync.WaitGroup
	for range 3 {
		h := hybridAt(t, b.server.Addr, fallback.Config{Instances: 3}, leases(50))
		for range 4 {
			all.Go(func() {
				// The pace of a client.
				for start := time.Now(); time.Since(start) < 3*time.Second; time.Sleep(100 * time.Microsecond) {
					before := time.Now()
					res, by, err := runSource(context.Background(), h,
						&weir.Request{Key: "a", Limit: limit, Duration: window})
					if !assert.NoError(t, err) || by == weir.FromLocal || !res.Allowed() {
						continue
					}
					assert.True(t, res.ExpiresAt.After(before), "admitted in a window that had ended")
					mu.Lock()
					counts[res.ExpiresAt.Round(0).UTC()]++
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	assert.Greater(t, len(counts), 5)
	for end, n := range counts {
		assert.LessOrEqual(t, n, limit, "%v", end)
	}
	t.Logf("%d windows", len(counts))
}

// Strategies on Redis lapse as those in memory do, and three instances that lease them admit what
// the strategy allows with a fraction of the round trips.
func TestLeaseOfEachStrategy(t *testing.T) {
	b := newBench(t)
	store := storeAt(t, b.proxy.Addr, redislimit.Config{Timeout: 5 * time.Second})
	limiter := newLimiter(t, nil)
	const limit = 2000
	r := weir.Request{Key: "leased", Limit: limit, Duration: 24 * time.Hour}
	for name, row := range map[string]struct {
		remote weir.Counter
		local  weir.Counter
	}{
		"FixedWindow":   {store.FixedWindow(), limiter.FixedWindow()},
		"SlidingWindow": {store.SlidingWindow(), limiter.SlidingWindow()},
		"TokenBucket":   {store.TokenBucket(0), limiter.TokenBucket(0)},
	} {
		expires := time.Now().Add(time.Hour)
		until, each, ok := row.local.About().Until(&r, expires)
		gotUntil, gotEach, gotOK := row.remote.About().Until(&r, expires)
		assert.Equal(t, []any{until, each, ok}, []any{gotUntil, gotEach, gotOK}, name)
		b.proxy.Forget()
		var admitted atomic.Uint64
		var all sync.WaitGroup
		for range 3 {
			l := near.NewLeases(row.remote, near.LeaseConfig{Block: 100, Instances: 3})
			for range 4 {
				all.Go(func() {
					for {
						q := r
						res, err := l.Run(context.Background(), &q)
						if !assert.NoError(t, err) || !res.Allowed() {
							return
						}
						admitted.Add(1)
					}
				})
			}
		}
		all.Wait()
		seen := b.proxy.Seen()
		assert.LessOrEqual(t, admitted.Load(), uint64(limit+1), "%s: a token may flow in", name)
		assert.GreaterOrEqual(t, admitted.Load(), uint64(limit*95/100), name)
		assert.Less(t, seen["evalsha"]+seen["eval"], limit/10, name)
	}
	for name, s := range map[string]weir.Counter{"SlidingLog": store.SlidingLog(),
		"Counter": store.Counter()} {
		_, _, ok := s.About().Until(&r, time.Now())
		assert.False(t, ok, name)
	}
}
