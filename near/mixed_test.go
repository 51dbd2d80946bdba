package near_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/near"
)

// Three instances of 64 callers make requests of 1 to 50 at a delay of 1 ms, until each caller is
// denied once: nobody is denied before 95 % of the limit is used, and then at most a block of each
// instance is held unused.
func TestLeaseOfMixedCosts(t *testing.T) {
	const limit, block, instances = 10_000, 500, 3
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			server := far(t, time.Millisecond)
			var mu sync.Mutex
			var first time.Time // denial
			admitted := map[time.Time]uint64{}
			var callers sync.WaitGroup
			for n := range uint64(instances) {
				l := near.NewLeases(server, near.LeaseConfig{Block: block, Instances: instances})
				for m := range uint64(64) {
					callers.Go(func() {
						rng := rand.New(rand.NewPCG(seed, n<<8|m))
						for {
							r := weir.Request{Key: "a", Limit: limit, Duration: time.Hour, Cost: 1 + rng.Uint64N(50)}
							res, err := l.Run(t.Context(), &r)
							mu.Lock()
							now := time.Now()
							if !assert.NoError(t, err) || !res.Allowed() {
								if first.IsZero() {
									first = now
								}
								mu.Unlock()
								return
							}
							admitted[now] += r.Cost
							mu.Unlock()
						}
					})
				}
			}
			callers.Wait()
			res := ask(t, server, weir.Request{Key: "a", Limit: limit, Duration: time.Hour, Cost: limit})
			before, all := uint64(0), uint64(0)
			for at, cost := range admitted {
				all += cost
				if !at.After(first) {
					before += cost
				}
			}
			t.Logf("first denial at %d, %d admitted, %d counted, %d round trips, %d at once",
				before, all, res.TotalRequests, server.calls.Load(), server.most.Load())
			assert.GreaterOrEqual(t, before, uint64(limit*95/100))
			assert.LessOrEqual(t, all, uint64(limit))
			assert.LessOrEqual(t, res.TotalRequests-all, uint64(instances*block))
		})
	}
}

// A burst of 300 callers, all at once and far away, is admitted as long as the limit suffices.
func TestLeaseOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := far(t, 20*time.Millisecond)
		var fleet []weir.Strategy
		for range 3 {
			fleet = append(fleet, near.NewLeases(server, near.LeaseConfig{Block: 500, Instances: 3}))
		}
		start := time.Now()
		var callers sync.WaitGroup
		for n := range uint64(300) {
			callers.Go(func() {
				r := weir.Request{Key: "a", Limit: 10_000, Duration: time.Hour, Cost: 1 + n%50}
				res, err := fleet[n%3].Run(t.Context(), &r)
				assert.NoError(t, err)
				assert.True(t, res.Allowed(), "%d of cost %d", n, r.Cost)
			})
		}
		callers.Wait()
		assert.LessOrEqual(t, time.Since(start), 60*time.Millisecond)
		t.Logf("%d round trips in %v", server.calls.Load(), time.Since(start))
	})
}

// failsFor fails requests of one cost, after a delay of its own.
type failsFor struct {
	distant
	cost  uint64
	takes time.Duration
}

func (s failsFor) About() *weir.About { return s.distant.About().By(s) }

func (s failsFor) Do(ctx context.Context, ops []*weir.Op) {
	if ops[0].Cost != s.cost {
		s.distant.Do(ctx, ops)
		return
	}
	time.Sleep(s.takes) // in a bubble
	ops[0].Err = errDown
}

// Of callers whose costs are denied one by one, each has the answer of its own call, whichever
// arrives first.
func TestLeaseWhoseCallsEndDifferently(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			server := far(t, 20*time.Millisecond)
			r := weir.Request{Key: "a", Limit: 10, Duration: time.Hour, Cost: 9}
			require.True(t, ask(t, server, r).Allowed())
			l := near.NewLeases(failsFor{server, 3, takes}, near.LeaseConfig{})
			var callers sync.WaitGroup
			for _, cost := range []uint64{2, 3} {
				callers.Go(func() {
					r := r
					r.Cost = cost
					res, err := l.Run(t.Context(), &r)
					if cost == 3 {
						assert.ErrorIs(t, err, errDown)
						assert.Nil(t, res)
						return
					}
					assert.NoError(t, err)
					assert.False(t, res.Allowed())
				})
				time.Sleep(time.Millisecond)
			}
			callers.Wait()
		})
	}
}
