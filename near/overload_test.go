package near_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/near"
)

// Where more is asked for than the strategy admits, nobody waits for long: neither for the next
// tokens, of which some flow in during each round trip, nor for what other instances take first,
// nor to be denied.
func TestLeaseInOverload(t *testing.T) {
	for name, of := range map[string]func(*weir.Limiter) weir.Strategy{
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
		"a small burst": func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(20) },
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
	} {
		for instances, trip := range map[int]time.Duration{
			1: time.Millisecond, 3: 5 * time.Millisecond, 8: 20 * time.Millisecond,
		} {
			t.Run(fmt.Sprint(name, " of ", instances), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { overload(t, of, instances, trip) })
			})
		}
	}
}

// overload sends 5000 requests a second to instances that share a limit of 2000.
func overload(
	t *testing.T, of func(*weir.Limiter) weir.Strategy, instances int, trip time.Duration,
) {
	server := far(t, trip/2)
	server.Counter, server.back = weir.CounterOf(of(limiterOn(t, nil))), trip/2
	leases := make([]*near.Leases, instances)
	for i := range leases {
		leases[i] = near.NewLeases(server, near.LeaseConfig{Instances: instances})
	}
	r := weir.Request{Key: "a", Limit: 2000, Duration: time.Second}
	var mu sync.Mutex
	var longest time.Duration
	answers := map[bool]int{}
	var callers sync.WaitGroup
	for i := range 2 * 5000 { // in two seconds
		callers.Go(func() {
			r, start := r, time.Now()
			res, err := leases[i%instances].Run(context.Background(), &r)
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err)
			answers[res.Allowed()]++
			longest = max(longest, time.Since(start))
		})
		time.Sleep(time.Second / 5000)
	}
	callers.Wait()
	t.Logf("%v, the longest took %v, %d calls", answers, longest, server.calls.Load())
	assert.LessOrEqual(t, longest, 5*trip)
	assert.LessOrEqual(t, answers[true], int(2000*(3+longest.Seconds()))+20)
	if server.About().Burst != 20 || trip == time.Millisecond { // what flows in within ten round trips
		assert.GreaterOrEqual(t, answers[true], 2*2000-20)
	}
	assert.Less(t, server.calls.Load(), uint64(1.2*2*5000), "about as many as without leases")
}

// A request that costs more than a Block is admitted although so many small ones come meanwhile
// that they use up what was left for it.
func TestLeaseOfALargeCostAmongSmallOnes(t *testing.T) {
	for _, cost := range []uint64{40, 200} {
		synctest.Test(t, func(t *testing.T) {
			l := near.NewLeases(far(t, time.Millisecond), near.LeaseConfig{Block: 16})
			r := weir.Request{Key: "a", Limit: 100_000, Duration: 24 * time.Hour}
			ask(t, l, r) // 15 are left
			start, took := time.Now(), time.Duration(0)
			var callers sync.WaitGroup
			callers.Go(func() {
				large := r
				large.Cost = cost
				assert.True(t, ask(t, l, large).Allowed())
				took = time.Since(start)
			})
			for range 20 * 100 {
				time.Sleep(time.Millisecond / 20)
				callers.Go(func() { assert.True(t, ask(t, l, r).Allowed()) })
			}
			callers.Wait()
			assert.LessOrEqual(t, took, 5*time.Millisecond, "cost %d", cost)
		})
	}
}
