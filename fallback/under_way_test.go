package fallback_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// atTheGate is an instance in a bubble, and the calls that it has begun.
type atTheGate struct {
	f       *fallback.Fallback
	waiting chan chan error // of each call, in their order: what ends it, or lets it through
	calls   []chan error
	results []*weir.Result // nil until the call has ended
}

func newAtTheGate(t *testing.T, own weir.Strategy, instances func() int) *atTheGate {
	s, waiting := newServer(func() weir.Strategy { return local(t) }), make(chan chan error, 1)
	s.passes = func(c call) (*weir.Result, error) {
		if c.takes() {
			end := make(chan error)
			waiting <- end
			if err := <-end; err != nil {
				return nil, err
			}
		}
		return c.do()
	}
	return &atTheGate{waiting: waiting, f: newFallback(t, s, own,
		fallback.Config{InstancesFunc: instances, MinCalls: 1 << 30, Timeout: time.Hour,
			AllowUnlike: true})}
}

// begin begins n calls.
func (a *atTheGate) begin(t *testing.T, r weir.Request, n int) {
	for range n {
		i := len(a.results)
		a.results = append(a.results, nil)
		go func() {
			res, err := a.f.Run(t.Context(), &r)
			assert.NoError(t, err)
			a.results[i] = res
		}()
		a.calls = append(a.calls, <-a.waiting)
	}
}

// end ends calls, one after another.
func (a *atTheGate) end(err error, calls ...int) {
	for _, i := range calls {
		a.calls[i] <- err
		synctest.Wait()
	}
}

func (a *atTheGate) admitted() (n int) {
	for _, res := range a.results {
		if res != nil && res.Allowed() {
			n++
		}
	}
	return n
}

// What calls under way may still admit, local does not.
func TestCallsUnderWayWhenOthersFail(t *testing.T) {
	for name, row := range map[string]struct {
		limit uint64
		do    func(t *testing.T, a *atTheGate, r weir.Request)
		want  int
	}{
		"eight succeed after ten have failed": {10, func(t *testing.T, a *atTheGate, r weir.Request) {
			a.begin(t, r, 18)
			a.end(errDown, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			a.end(nil, 10, 11, 12, 13, 14, 15, 16, 17)
		}, 10},
		"and before": {10, func(t *testing.T, a *atTheGate, r weir.Request) {
			a.begin(t, r, 18)
			a.end(nil, 10, 11, 12, 13, 14, 15, 16, 17)
			a.end(errDown, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		}, 10},
		"all fail": {10, func(t *testing.T, a *atTheGate, r weir.Request) {
			a.begin(t, r, 10)
			a.end(errDown, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		}, 10},
		"a later call is admitted before an earlier one": {3,
			func(t *testing.T, a *atTheGate, r weir.Request) {
				a.begin(t, r, 2)
				a.end(errDown, 1)
				a.begin(t, r, 2)
				a.end(nil, 2)
				a.end(errDown, 3)
				a.end(nil, 0)
			}, 3},
		"those that are denied are given back": {2, func(t *testing.T, a *atTheGate, r weir.Request) {
			large := r
			large.Cost = 2
			a.begin(t, r, 1)
			a.begin(t, large, 1)
			a.begin(t, r, 2)
			a.end(errDown, 2)
			assert.Zero(t, a.admitted(), "local has no room for the two others")
			a.end(nil, 0, 1)
			a.end(errDown, 3)
		}, 2},
		"a request over the limit is none": {1, func(t *testing.T, a *atTheGate, r weir.Request) {
			large := r
			large.Cost = 2
			a.begin(t, large, 1)
			a.begin(t, r, 1)
			a.end(errDown, 1)
			a.end(nil, 0)
		}, 1},
		"those before a reset are none": {2, func(t *testing.T, a *atTheGate, r weir.Request) {
			a.begin(t, r, 2)
			a.end(errDown, 1)
			require.NoError(t, ops.Reset(t.Context(), a.f, &r))
			a.begin(t, r, 2)
			a.end(errDown, 2, 0, 3)
		}, 3},
		"one that succeeds after a reset is none of local's": {2,
			func(t *testing.T, a *atTheGate, r weir.Request) {
				a.begin(t, r, 2)
				a.end(errDown, 1)
				a.begin(t, r, 1)
				require.NoError(t, ops.Reset(t.Context(), a.f, &r))
				a.end(nil, 2)
				a.begin(t, r, 2)
				a.end(errDown, 3, 4, 0)
			}, 4},
	} {
		for _, admits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, local has Receipts %v", name, admits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					own := local(t)
					if !admits {
						own = chargingOnly(own)
					}
					a := newAtTheGate(t, own, nil)
					r := weir.Request{Key: "a", Limit: row.limit, Duration: 24 * time.Hour}
					row.do(t, a, r)
					assert.Equal(t, row.want, a.admitted())
					a.begin(t, r, 1)
					a.end(nil, len(a.calls)-1)
					assert.False(t, a.results[len(a.calls)-1].Allowed(), "and no more")
				})
			})
		}
	}
}

// takingBack returns a local that calls a function before it takes back.
func takingBack(s weir.Strategy, first func()) *around {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if op.Verb == weir.OpReturn {
			first()
		}
		next(ctx, op)
	})
}

// An answer that arrives while local takes back a call that failed does not count as that call.
func TestAnAnswerWhileLocalTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *atTheGate
		var once sync.Once
		own := local(t)
		answers := func() {
			a.calls[2] <- nil
			for range 10_000 { // enough for all that the answer changes without the account's lock
				runtime.Gosched()
			}
		}
		here := takingBack(chargingOnly(own), func() { once.Do(answers) })
		here.about.Name = "another" // else primary's windows, counted beside it, would hide its count
		a = newAtTheGate(t, here, nil)
		r := weir.Request{Key: "a", Limit: 5, Duration: 24 * time.Hour}
		large := r
		large.Cost = 4
		a.begin(t, r, 2)
		a.end(errDown, 0)
		a.begin(t, r, 1)
		a.begin(t, large, 1)
		a.end(errDown, 1)
		assert.Equal(t, 2, a.admitted(), "the first and the third: for the last local has no room")
		a.end(errDown, 3)
		assert.Equal(t, 2, a.admitted(), "2 and 4 are over the limit of 5")
	})
}

// Local takes back a call under way by its Receipt: exactly that, and nothing after a reset.
func TestCallsUnderWayAreTakenBackByReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var receipts []weir.Receipt
		here := newAround(local(t), func(
			ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op),
		) {
			if op.Verb == weir.OpReturn {
				receipts = append(receipts, op.Receipt)
			}
			next(ctx, op)
		})
		a := newAtTheGate(t, here, nil)
		a.begin(t, weir.Request{Key: "a", Limit: 5, Duration: 24 * time.Hour}, 2)
		a.end(errDown, 0, 1)
		require.Len(t, receipts, 1)
		assert.NotNil(t, receipts[0].Of)
		assert.EqualValues(t, 1, receipts[0].Cost)
	})
}

// A call whose caller has left is under way until it fails.
func TestCallsUnderWayOfCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtTheGate(t, local(t), nil)
		r := weir.Request{Key: "a", Limit: 1, Duration: 24 * time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			r := r
			_, err := a.f.Run(ctx, &r)
			left <- err
		}()
		call := <-a.waiting
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		a.begin(t, r, 2)
		a.end(errDown, 0)
		assert.Zero(t, a.admitted(), "primary may still admit it")
		call <- errDown
		synctest.Wait()
		a.end(errDown, 1)
		assert.Equal(t, 1, a.admitted())
	})
}

// When instances leave while debts are owed, an answer to a call of before does not make the share
// of this one larger: those that left may have used theirs.
func TestAnswersWhileDebtsAreOwedKeepTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instances := 3
		a := newAtTheGate(t, local(t), func() int { return instances })
		r := weir.Request{Key: "a", Limit: 30, Duration: 24 * time.Hour}
		a.begin(t, r, 10)
		a.end(errDown, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		assert.Equal(t, 9, a.admitted(), "one is under way")
		instances = 1
		a.end(nil, 9)
		assert.Equal(t, 10, a.admitted(), "a third")
		a.begin(t, r, 1)
		a.end(errDown, 10)
		assert.Equal(t, 10, a.admitted(), "and no more, as others may have admitted 20")
	})
}

// A denial of local, and the Peek of one, count the calls under way as used, and admissions do not.
func TestResultsCountCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtTheGate(t, local(t), nil)
		r := weir.Request{Key: "a", Limit: 10, Duration: 24 * time.Hour}
		now := time.Now()
		peek := func() weir.Result {
			res, err := ops.Peek(t.Context(), a.f, &r)
			require.NoError(t, err)
			return *res
		}
		a.begin(t, r, 12)
		a.end(errDown, 0)
		assert.Equal(t, weir.Result{TotalRequests: 10, ExpiresAt: now}, *a.results[0], "in use together")
		a.end(errDown, 1, 2, 3, 4)
		assert.EqualValues(t, 3, a.admitted(), "7 others are under way")
		assert.EqualValues(t, 10, peek().TotalRequests)
		a.end(errDown, 5)
		a.begin(t, r, 1)
		assert.Equal(t, weir.Result{TotalRequests: 10, ExpiresAt: now.Add(24 * time.Hour)}, peek())
		r.Limit = 20
		assert.Equal(t, weir.Result{State: weir.Allow, TotalRequests: 5,
			ExpiresAt: now.Add(24 * time.Hour)}, peek())
		a.end(errDown, 6, 7, 8, 9, 10, 11, 12)
	})
}

// road is a server that calls reach, and whose answers arrive, after random times. It carries out
// one call at a time, and a part of the calls fail before they reach it: no answer is lost.
type road struct {
	*server
	prompt bool

	mu     sync.Mutex
	rng    *rand.Rand // guarded by mu, as is breaks
	breaks float64    // the share of calls that fail
}

func (s *road) About() *weir.About {
	a := s.server.About().By(s)
	a.Prompt = s.prompt
	return a
}

func (s *road) travel(c call) (*weir.Result, error) {
	if c.op.Verb == weir.OpReturn {
		return c.do()
	}
	s.mu.Lock()
	there := time.Duration(s.rng.IntN(20)) * time.Millisecond
	back := time.Duration(s.rng.IntN(20)) * time.Millisecond
	breaks := s.rng.Float64() < s.breaks
	s.mu.Unlock()
	time.Sleep(there) // in a bubble, as below
	if breaks {
		return nil, errDown
	}
	s.mu.Lock()
	res, err := c.do()
	s.mu.Unlock()
	time.Sleep(back) // in a bubble
	return res, err
}

// breakRoad sets the share of calls that fail.
func (s *road) breakRoad(share float64) { s.mu.Lock(); s.breaks = share; s.mu.Unlock() }

// crowd is how callers use instances while some calls of primary fail.
type crowd struct {
	of        strategyOf
	to        func(*road) weir.Strategy
	local     func(weir.Strategy) weir.Strategy // nil: the strategy itself
	instances int                               // 0: two to four
	giveBack  bool                              // some callers do, with part of the others under way
}

// episodes runs c in n episodes, from a first one on, on each strategy.
func (c crowd) episodes(
	t *testing.T, n int, first uint64, check func(t *testing.T, u *used, limit, episode uint64),
) {
	for name, of := range strategies() {
		c.of = of
		t.Run(name, func(t *testing.T) {
			for i := range uint64(n) {
				synctest.Test(t, func(t *testing.T) {
					u, limit := c.run(t, first+i)
					check(t, u, limit, first+i)
				})
			}
		})
	}
}

// used is the cost that callers have, and the most that they had.
type used struct {
	mu        sync.Mutex
	now, most uint64 // guarded by mu
}

func (u *used) add(cost uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now += cost
	u.most = max(u.most, u.now)
}

// run makes one episode: calls in several rounds, which fail more or less often, then until all
// that is left of the limit is used, locally or not.
func (c crowd) run(t *testing.T, seed uint64) (u *used, limit uint64) {
	u = new(used)
	c.instances = cmp.Or(c.instances, int(2+seed%3))
	rng := rand.New(rand.NewPCG(seed, 1))
	made := func() weir.Strategy { return c.of(limiterOn(t, nil)) }
	s := &road{server: newServer(made), prompt: rng.IntN(2) == 0, rng: rand.New(rand.NewPCG(seed, 2))}
	s.passes = s.travel
	var instances []*fallback.Fallback
	cfg := fallback.Config{Instances: c.instances, MinCalls: []int{2, 20, 1 << 30}[rng.IntN(3)],
		ProbeInterval: 50 * time.Millisecond, Stall: -1, Timeout: time.Second} // longer than any call
	for range c.instances {
		local := made()
		if c.local != nil {
			local = c.local(local)
		}
		instances = append(instances, newFallback(t, c.to(s), local, cfg))
	}
	r := weir.Request{Key: "a", Limit: uint64(5 + rng.IntN(100)), Duration: 24 * time.Hour}
	for range 1 + rng.IntN(4) {
		s.breakRoad([]float64{0, 0.1, 0.5, 0.9, 1}[rng.IntN(5)])
		var callers sync.WaitGroup
		for range 1 + rng.IntN(64) {
			f, r, wait := instances[rng.IntN(c.instances)], r, time.Duration(rng.IntN(60))*time.Millisecond
			r.Cost = uint64(1 + rng.IntN(2))
			back := c.giveBack && rng.IntN(4) == 0
			callers.Go(func() {
				time.Sleep(wait) // in a bubble
				res, giveBack, err := ops.Admit(t.Context(), f, &r)
				if !assert.NoError(t, err) || !res.Allowed() {
					return
				}
				u.add(r.Cost)
				if back {
					time.Sleep(wait) // in a bubble
					u.add(-r.Cost)
					assert.NoError(t, giveBack(t.Context(), r.Cost))
				}
			})
		}
		callers.Wait()
	}
	for _, breaks := range []float64{float64(rng.IntN(2)), 0} {
		s.breakRoad(breaks)
		for _, f := range instances {
			for denied := 0; denied < 3; time.Sleep(10 * time.Millisecond) { // in a bubble
				res, by := ask(t, f, r)
				switch {
				case res.Allowed():
					u.add(1)
				case by == weir.FromPrimary || breaks > 0:
					denied++
				}
			}
		}
	}
	return u, r.Limit
}

// ways are the kinds of primary at the end of a road.
var ways = map[string]func(*road) weir.Strategy{
	"reconciles":        func(s *road) weir.Strategy { return s },
	"seeds and charges": func(s *road) weir.Strategy { return chargingOnly(s) },
}

// One instance admits exactly the limit while some calls of primary fail and others, which are
// under way meanwhile, succeed.
func TestOneInstanceAdmitsTheLimit(t *testing.T) {
	for way, to := range ways {
		t.Run(way, func(t *testing.T) {
			// In episode 2157 calls under way fail after an answer whose count they hid in local.
			crowd{to: to, instances: 1}.episodes(t, slow.N(12, 200, 5000), 2157,
				func(t *testing.T, u *used, limit, episode uint64) {
					assert.Equal(t, limit, u.now, "episode %d", episode)
				})
		})
	}
}

// Nor does it admit more where callers give back what they have.
func TestOneInstanceAdmitsTheLimitWhereCallersGiveBack(t *testing.T) {
	crowd{to: ways["reconciles"], instances: 1, giveBack: true}.episodes(t, slow.N(12, 200, 5000), 0,
		func(t *testing.T, u *used, limit, episode uint64) {
			assert.LessOrEqual(t, u.most, limit, "episode %d", episode)
		})
}

// Several instances admit no more than New says of the worst case.
func TestCrowdsAreBounded(t *testing.T) {
	crowd{to: ways["reconciles"]}.episodes(t, slow.N(12, 200, 5000), 0,
		func(t *testing.T, u *used, limit, episode uint64) {
			assert.LessOrEqual(t, u.most, bound(limit, 2+episode%3), "episode %d", episode)
		})
}

// The control: a local that cannot take back counts no calls under way.
func TestOneInstanceAdmitsTheLimitControl(t *testing.T) {
	over := 0
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			u, limit := crowd{of: fixedWindow, to: ways["reconciles"], instances: 1,
				local: func(s weir.Strategy) weir.Strategy { return bare{s} }}.run(t, seed)
			if u.most > limit {
				over++
			}
		})
	}
	assert.Greater(t, over, 5)
}
