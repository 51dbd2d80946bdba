package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/weirgo/weir/weirtest"
)

// eachFront runs a test with each kind of primary that can be charged.
func eachFront(t *testing.T, test func(t *testing.T, to front)) {
	for name, to := range fronts {
		t.Run(name, func(t *testing.T) { test(t, to) })
	}
}

// During an outage each instance continues from the known count within its share; afterwards
// primary continues from what was admitted meanwhile. The clock stands still, so all strategies
// give the same counts.
func TestContinuesFromTheKnownCount(t *testing.T) {
	for name, of := range strategies() {
		for _, n := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				eachFront(t, func(t *testing.T, to front) {
					f := newFleet(t, n, of, tripAtOnce, to)
					for i := range 40 {
						ask(t, f.instances[i%n], hundred)
					}
					for _, i := range f.instances { // so that each instance knows the count to within n
						ask(t, i, hundred)
					}
					remains := 100 - (40 + n)
					f.server.fails(errDown)
					total := 0
					for _, i := range f.instances {
						total += int(most(t, i, hundred))
					}
					assert.InDelta(t, remains, total, float64(n), "the shares of the remainder")
					f.heal(t)
					for _, i := range f.instances { // each instance reconciles before the remainder is used
						if res, _ := ask(t, i, hundred); res.Allowed() {
							total++
						}
					}
					for _, i := range f.instances {
						total += int(most(t, i, hundred))
					}
					refilled := 0
					if name == "TokenBucket" {
						refilled = 4 // in two seconds
					}
					assert.InDelta(t, remains+refilled, total, float64(2*n), "no count was reset")
				})
			})
		}
	}
}

// A server that restarts without its counts is seeded once, before it decides.
func TestServerThatLosesItsCounts(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			eachFront(t, func(t *testing.T, to front) {
				f := newFleet(t, 1, of, tripAtOnce, to)
				for range 60 {
					ask(t, f.instances[0], hundred)
				}
				f.server.fails(errDown)
				for range 10 {
					ask(t, f.instances[0], hundred)
				}
				f.server.restart()
				f.heal(t)
				res, by := ask(t, f.instances[0], hundred)
				assert.Equal(t, weir.FromPrimary, by)
				assert.InDelta(t, 70, res.TotalRequests, 4)
				again := f.server.reconciles.Load()
				ask(t, f.instances[0], hundred)
				assert.Equal(t, again, f.server.reconciles.Load(), "it is seeded once")
			})
		})
	}
}

// Requests that local admitted in an earlier period are not charged to the next one.
func TestDebtsExpire(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, of, tripAtOnce, whole)
			f.server.fails(errDown)
			most(t, f.instances[0], hundred)
			f.clock.Advance(3 * time.Minute)
			f.heal(t)
			assert.EqualValues(t, 100, most(t, f.instances[0], hundred))
			assert.Zero(t, f.instances[0].Stats().Reconciled)
		})
	}
}

// Debts to a token bucket decrease as it refills: an hour of outage leaves at most one burst of
// debt.
func TestDebtsDecreaseAsTheBucketRefills(t *testing.T) {
	f := newFleet(t, 1, strategies()["TokenBucket"], tripAtOnce, whole)
	f.server.fails(errDown)
	for range 3600 {
		ask(t, f.instances[0], hundred)
		f.clock.Advance(time.Second)
	}
	f.heal(t)
	ask(t, f.instances[0], hundred)
	assert.LessOrEqual(t, f.instances[0].Stats().Reconciled, uint64(100*5/4),
		"little more than one burst")
}

// A debt to Tiers counts for the longest period, whichever tier the Result describes.
func TestDebtsToTiers(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		of := func(l *weir.Limiter) weir.Strategy {
			tiers := l.Tiers(weir.Tier{Limit: 100, Duration: time.Second},
				weir.Tier{Limit: 1000, Duration: time.Hour})
			return tiers
		}
		f := newFleet(t, 1, of, with(fallback.Config{OwnLimits: true}), to)
		i, admitted := f.instances[0], uint64(0)
		r := weir.Request{Key: "a"}
		for outage := range 3 {
			f.server.fails(errDown)
			for range 300 {
				if res, _ := ask(t, i, r); res.Allowed() {
					admitted++
				}
				f.clock.Advance(time.Second)
			}
			f.heal(t)
			if res, _ := ask(t, i, r); res.Allowed() {
				admitted++
			}
			assert.GreaterOrEqual(t, i.Stats().Reconciled, uint64(300*(outage+1)))
			f.clock.Advance(time.Second)
		}
		for range 1000 {
			if res, _ := ask(t, i, r); res.Allowed() {
				admitted++
			}
			f.clock.Advance(20 * time.Millisecond)
		}
		assert.EqualValues(t, 1000, admitted, "within an hour")
	})
}

// loseAnswers has an instance owe 50, and then lose the answers of some calls, each of which takes
// the debt along. It returns the next Result.
func loseAnswers(
	t *testing.T, of strategyOf, to front, lost int,
) (*fallback.Fallback, weir.Result) {
	// so that the breaker stays closed
	f := newFleet(t, 1, of, fallback.Config{MinCalls: 1 << 30}, to)
	i := f.instances[0]
	f.server.fails(errDown)
	for range 50 {
		ask(t, i, daily)
	}
	f.server.losesAnswers()
	for range lost {
		ask(t, i, daily)
	}
	f.server.fails(nil)
	res, by := ask(t, i, daily)
	assert.Equal(t, weir.FromPrimary, by)
	return i, res
}

var daily = weir.Request{Key: "a", Limit: 10_000, Duration: 24 * time.Hour}

// A debt is charged once, even if it is sent again because replies are lost. Each request whose
// reply is lost may count.
func TestLostAnswersChargeOnce(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			const lost, admitted = 60, uint64(50 + 60 + 1)
			i, res := loseAnswers(t, of, whole, lost)
			assert.LessOrEqual(t, res.TotalRequests, admitted+lost, "at most one hit for each lost reply")
			assert.GreaterOrEqual(t, res.TotalRequests, admitted)
			next, _ := ask(t, i, daily)
			assert.Equal(t, res.TotalRequests+1, next.TotalRequests)
		})
	}
}

// The control: a debt that is charged whenever it is sent is counted repeatedly.
func TestLostAnswersChargeOnceControl(t *testing.T) {
	_, res := loseAnswers(t, fixedWindow, chargingFront, 60)
	assert.Greater(t, res.TotalRequests, uint64(1000))
}

// A refund after a charge whose reply was lost reduces the next charge.
func TestLostAnswersAndRefunds(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{MinCalls: 1 << 30}, whole)
	i, r := f.instances[0], hundred
	f.server.fails(errDown)
	var taken weir.Result
	for range 10 {
		taken, _ = ask(t, i, r)
	}
	f.server.losesAnswers()
	denied := r
	denied.Cost = 200
	ask(t, i, denied) // sends a charge of 10
	for range 4 {
		require.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
	}
	f.server.fails(errDown)
	for range 7 {
		ask(t, i, r)
	}
	f.server.fails(nil)
	res, _ := ask(t, i, r)
	assert.EqualValues(t, 10-4+7+1, res.TotalRequests)
}

// Refunded requests are not part of the seed for a restarted server.
func TestRefundsAreNotSeeded(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
	i, r := f.instances[0], hundred
	for range 10 {
		taken, _ := ask(t, i, r)
		assert.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
	}
	f.server.fails(errDown)
	ask(t, i, r)
	f.server.restart()
	f.heal(t)
	res, _ := ask(t, i, r)
	assert.EqualValues(t, 2, res.TotalRequests)
}

// A key's debts are charged with the next request for that key, not with those for others.
func TestReconciledCallerByCaller(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		one, two := hundred, hundred
		two.Key = "b"
		f.server.fails(errDown)
		for range 30 {
			ask(t, f.instances[0], one)
			ask(t, f.instances[0], two)
		}
		f.heal(t)
		res, _ := ask(t, f.instances[0], one)
		assert.EqualValues(t, 31, res.TotalRequests)
		assert.EqualValues(t, 30, f.instances[0].Stats().Reconciled)
		res, _ = ask(t, f.instances[0], two)
		assert.EqualValues(t, 31, res.TotalRequests)
	})
}

// Failures that do not open the breaker cause no additional round trips.
func TestSparseFailuresCostNothing(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{}, whole)
	const n = 5_000
	for k := range n {
		if k%700 == 0 {
			f.server.fails(errDown)
		}
		ask(t, f.instances[0], weir.Request{Key: fmt.Sprint(k % 100), Limit: 1000, Duration: time.Hour})
		f.server.fails(nil)
		f.clock.Advance(time.Millisecond)
	}
	stats := f.instances[0].Stats()
	assert.Zero(t, stats.Opens)
	assert.EqualValues(t, 8, stats.Failures)
	assert.EqualValues(t, n, f.server.calls.Load(), "one call for each decision")
}

// An OpCatchUp that hangs once blocks its key for at most Timeout.
func TestCatchingUpThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, end := true, make(chan struct{})
		s := newServer(func() weir.Strategy { return local(t) })
		s.passes = func(c call) (*weir.Result, error) {
			if c.op.Verb == weir.OpCatchUp && hangs {
				hangs = false
				<-end
			}
			return c.do()
		}
		f := newFallback(t, chargingOnly(s), local(t), tripAtOnce)
		ask(t, f, hundred)
		s.fails(errDown)
		ask(t, f, hundred)
		s.fails(nil)
		time.Sleep(2 * time.Second)
		ask(t, f, weir.Request{Key: "trigger", Limit: 1, Duration: time.Hour})
		synctest.Wait()
		require.Equal(t, fallback.Closed, f.Stats().State)
		start := time.Now()
		assert.Equal(t, weir.FromLocal, source(t, f, hundred), "the OpCatchUp hangs")
		assert.Equal(t, fallback.DefaultTimeout, time.Since(start))
		time.Sleep(2 * time.Second)
		ask(t, f, hundred) // starts a probe, as the late call opened the breaker
		synctest.Wait()
		assert.Equal(t, weir.FromPrimary, source(t, f, hundred))
		close(end)
	})
}

// Concurrent requests for one key wait for the one that seeds and charges, and then primary decides
// all of them.
func TestConcurrentReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func() weir.Strategy { return local(t) })
		s.passes = func(c call) (*weir.Result, error) {
			if c.op.Verb == weir.OpCatchUp {
				time.Sleep(10 * time.Millisecond) // in a bubble
			}
			return c.do()
		}
		f := newFallback(t, chargingOnly(s), local(t), tripAtOnce)
		ask(t, f, hundred)
		s.fails(errDown)
		for range 10 {
			ask(t, f, hundred)
		}
		s.fails(nil)
		time.Sleep(2 * time.Second)
		ask(t, f, weir.Request{Key: "trigger", Limit: 1, Duration: time.Hour})
		synctest.Wait()
		reconciles := s.reconciles.Load()
		by := make(chan weir.Source)
		for range 16 {
			go func() { by <- source(t, f, hundred) }()
		}
		for range 16 {
			assert.Equal(t, weir.FromPrimary, <-by)
		}
		assert.EqualValues(t, 1, s.reconciles.Load()-reconciles, "one OpCatchUp")
		res, _ := ask(t, f, hundred)
		assert.EqualValues(t, 1+10+16+1, res.TotalRequests)
	})
}

// A debt that arises while others are charged is not charged with them: it stays a debt.
func TestDebtsThatAriseMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused := newServer(func() weir.Strategy { return local(t) }), false
		s.passes = func(c call) (*weir.Result, error) {
			if c.op.Verb == weir.OpCharge && c.op.Cost == 4 && !refused {
				refused = true
				return nil, errDown
			}
			if c.op.Verb == weir.OpCharge || c.op.Verb == weir.OpCatchUp {
				time.Sleep(10 * time.Millisecond) // in a bubble
			}
			return c.do()
		}
		f := newFallback(t, chargingOnly(s), local(t), fallback.Config{MinCalls: 1 << 30})
		four, eight := hundred, hundred
		four.Cost, eight.Cost = 4, 8
		s.fails(errDown)
		ask(t, f, eight)
		s.fails(nil)
		var charges sync.WaitGroup
		charges.Go(func() { ask(t, f, hundred) }) // charges 8
		time.Sleep(time.Millisecond)
		require.NoError(t, ops.Charge(t.Context(), f, &four), "by local")
		ask(t, f, hundred) // waits for the charge of 8
		charges.Wait()
		res, by := ask(t, f, hundred)
		assert.Equal(t, weir.FromPrimary, by)
		assert.EqualValues(t, 8+4+3, res.TotalRequests)
	})
}

// A primary that returns errors.ErrUnsupported is used as it can be.
func TestErrUnsupportedMeansAbsent(t *testing.T) {
	for name, to := range map[string]front{
		"charges": func(s *server) weir.Strategy {
			return named("p", chargingFront(s), 100, time.Minute)
		},
		"nothing": func(s *server) weir.Strategy {
			return named("p", bare{s}, 100, time.Minute)
		},
	} {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		i := f.instances[0]
		for range 10 {
			ask(t, i, hundred)
		}
		f.server.fails(errDown)
		ask(t, i, hundred)
		f.heal(t)
		ask(t, i, hundred) // finds out what it cannot do
		res, by := ask(t, i, hundred)
		assert.Equal(t, weir.FromPrimary, by, name)
		assert.EqualValues(t, map[string]uint64{"charges": 13, "nothing": 12}[name], res.TotalRequests,
			name)
	}
}

// The ledger is bounded. Debts that it has no room for are dropped and counted.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 64}), whole)
	i := f.instances[0]
	flood := func() {
		for n := range 1_000 {
			r := hundred
			r.Key = fmt.Sprint(n)
			ask(t, i, r)
		}
	}
	flood()
	assert.LessOrEqual(t, i.Stats().Callers, 64)
	assert.Zero(t, i.Stats().Dropped)
	f.server.fails(errDown)
	flood()
	stats := i.Stats()
	assert.LessOrEqual(t, stats.Callers, 64)
	assert.EqualValues(t, 1_000, stats.Dropped+64, "debts are not evicted for new callers")
	f.clock.Advance(time.Minute)
	flood()
	assert.EqualValues(t, 2_000, i.Stats().Dropped+128, "debts are removed when their period is over")
}

// After a flood of keys that are used once, the debts of a regular key are still recorded.
func TestFloodDoesNotPinTheLedger(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 640}), whole)
	i := f.instances[0]
	for n := range slow.N(1_600, 8_000, 200_000) {
		ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 100, Duration: time.Hour})
	}
	f.server.fails(errDown)
	for range 50 {
		ask(t, i, hundred)
	}
	assert.Zero(t, i.Stats().Dropped)
	f.heal(t)
	res, _ := ask(t, i, hundred)
	assert.EqualValues(t, 51, res.TotalRequests)
}

// A new account for the same key does not repeat earlier totals, so its debts are charged.
func TestTotalsNeverRestart(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 1}), whole)
	i := f.instances[0]
	for range 3 {
		f.server.fails(errDown)
		for range 10 {
			ask(t, i, hundred)
		}
		f.heal(t)
		ask(t, i, hundred)
		for n := range 1000 { // evicts the account
			ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Hour})
		}
	}
	res, _ := ask(t, i, hundred)
	assert.EqualValues(t, 3*11+1, res.TotalRequests)
}

// An account is not evicted while a call for its key is in flight, so what local then admits is
// charged.
func TestAccountsInUseAreNotEvicted(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{MaxCallers: 64}, whole)
	i := f.instances[0]
	f.server.afterRun(func() {
		f.server.fails(nil)
		for k := range 1_000 {
			assert.Equal(t, weir.FromPrimary,
				source(t, i, weir.Request{Key: fmt.Sprint(k), Limit: 1, Duration: time.Minute}))
		}
	})
	f.server.fails(errDown)
	assert.Equal(t, weir.FromLocal, source(t, i, hundred))
	assert.Zero(t, i.Stats().Dropped)
	res, by := ask(t, i, hundred)
	assert.Equal(t, weir.FromPrimary, by)
	assert.EqualValues(t, 2, res.TotalRequests)
	assert.EqualValues(t, 1, i.Stats().Reconciled)
}

func TestLedgerWithoutABound(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: math.MaxInt}), whole)
	f.server.fails(errDown)
	ask(t, f.instances[0], hundred)
	stats := f.instances[0].Stats()
	assert.Equal(t, 1, stats.Callers)
	assert.Zero(t, stats.Dropped)
}

// A refund goes to the strategy that counted the request.
func TestRefund(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		i, r := f.instances[0], hundred
		taken, _ := ask(t, i, r)
		assert.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
		assert.EqualValues(t, 100, most(t, i, r))
		f.clock.Advance(time.Minute)
		f.server.fails(errDown)
		taken, _ = ask(t, i, r)
		ask(t, i, r)
		assert.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
		assert.EqualValues(t, 99, most(t, i, r))
		f.heal(t)
		assert.EqualValues(t, 0, most(t, i, r))
		assert.EqualValues(t, 100, i.Stats().Reconciled)
		assert.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
		assert.EqualValues(t, 1, most(t, i, r), "charged to primary, refunded by primary")
	})
}

// A cost over the limit was never admitted, so it is not refunded, by primary or by local, and no
// debt is forgiven.
func TestRefundOfMoreThanTheLimit(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		i, r, over := f.instances[0], hundred, hundred
		over.Cost = over.Limit + 1
		taken, _ := ask(t, i, r)
		assert.NoError(t, ops.Refund(t.Context(), i, &over, &taken))
		f.server.fails(errDown)
		taken, _ = ask(t, i, r)
		assert.NoError(t, ops.Refund(t.Context(), i, &over, &taken))
		assert.EqualValues(t, 98, most(t, i, r))
		f.heal(t)
		assert.EqualValues(t, 0, most(t, i, r))
		assert.EqualValues(t, 99, i.Stats().Reconciled)
	})
}

// refunding returns a primary that can give back, but not be charged.
func refunding(s *server) weir.Strategy {
	verbs := weir.VerbsOf(weir.OpTake, weir.OpReturn)
	var a *around
	a = newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if !verbs.Has(op.Verb) || op.Backlog != nil {
			op.Err = op.Unsupported(a.about)
			return
		}
		next(ctx, op)
	})
	a.about = &weir.About{Of: a, Verbs: verbs}
	return a
}

// Primary gives no refund for a request that local admitted without recording a debt.
func TestRefundWithoutADebt(t *testing.T) {
	for name, row := range map[string]struct {
		to    front
		flood int // number of other keys, which fill the ledger
	}{
		"no room in the ledger": {whole, 2_000},
		"no charger":            {refunding, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 64}), row.to)
			i, r := f.instances[0], hundred
			for range 50 {
				ask(t, i, r)
			}
			f.server.fails(errDown)
			for n := range row.flood {
				ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Minute})
			}
			taken, by := ask(t, i, r)
			require.Equal(t, weir.FromLocal, by)
			f.heal(t)
			ask(t, i, r)
			for range 20 {
				require.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
			}
			assert.EqualValues(t, 49, most(t, i, r), "primary has counted 51")
			f.clock.Advance(time.Minute)
			taken, _ = ask(t, i, r)
			require.NoError(t, ops.Refund(t.Context(), i, &r, &taken))
			assert.EqualValues(t, 100, most(t, i, r), "the next window is counted by primary alone")
		})
	}
}

func TestReset(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		i, r := f.instances[0], hundred
		most(t, i, r)
		assert.NoError(t, ops.Reset(t.Context(), i, &r))
		assert.EqualValues(t, 100, most(t, i, r))
		f.server.fails(errDown)
		ask(t, i, r)
		assert.NoError(t, ops.Reset(t.Context(), i, &r))
		for range 10 {
			ask(t, i, r)
		}
		f.heal(t)
		assert.EqualValues(t, 90, most(t, i, r),
			"primary was reset, and charged with what was admitted since")
	})
}

// A recorded reset does not hold its place in the ledger for ever.
func TestResetsExpire(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 64}), whole)
	i := f.instances[0]
	f.server.fails(errDown)
	reset := func() (err error) {
		for n := range 1000 {
			r := weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Minute}
			err = errors.Join(err, ops.Reset(t.Context(), i, &r))
		}
		return err
	}
	assert.ErrorIs(t, reset(), weir.ErrFull, "the ledger is full")
	f.clock.Advance(23 * time.Hour)
	ask(t, i, hundred)
	assert.EqualValues(t, 1, i.Stats().Dropped, "the ledger is still full")
	f.clock.Advance(2 * time.Hour)
	ask(t, i, hundred)
	assert.EqualValues(t, 1, i.Stats().Dropped)
}

// If the ledger is full, Reset still reaches primary when it is available.
func TestResetWithoutRoom(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 1}), whole)
	i, r := f.instances[0], hundred
	f.server.fails(errDown)
	for n := range 1000 { // fills every page
		ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Hour})
	}
	assert.ErrorIs(t, ops.Reset(t.Context(), i, &r), weir.ErrFull)
	f.heal(t)
	most(t, i, r)
	assert.NoError(t, ops.Reset(t.Context(), i, &r))
	assert.EqualValues(t, 100, most(t, i, r))
}

// An account stays in the ledger until the call of primary ends, so Reset finds it.
func TestResetDuringACanceledCall(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{MaxCallers: 64}), whole)
	i := f.instances[0]
	ask(t, i, hundred)
	ctx, leave := context.WithCancel(t.Context())
	left, recorded := make(chan struct{}), make(chan struct{})
	f.server.afterRun(func() {
		leave()
		<-left
		for k := range 1_000 {
			ask(t, i, weir.Request{Key: fmt.Sprint(k), Limit: 1, Duration: time.Minute})
		}
		r := hundred
		assert.NoError(t, ops.Reset(t.Context(), i, &r))
		close(recorded)
	})
	r := hundred
	_, err := i.Run(ctx, &r)
	assert.ErrorIs(t, err, context.Canceled)
	close(left)
	<-recorded
	f.server.fails(errDown)
	assert.EqualValues(t, 100, most(t, i, hundred))
}

// A reply sent before a Reset of its key and received after it is not recorded. A Reset of other
// keys makes no difference.
func TestResetBeforeAReplyArrives(t *testing.T) {
	for name, reset := range map[string]func(i *fallback.Fallback) error{
		"this caller": func(i *fallback.Fallback) error { r := hundred; return ops.Reset(t.Context(), i, &r) },
		"others": func(i *fallback.Fallback) error {
			for n := range 500 { // some on each page
				if err := ops.Reset(t.Context(), i, &weir.Request{Key: fmt.Sprint(n), Limit: 1,
					Duration: time.Minute}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
		i := f.instances[0]
		for range 79 {
			ask(t, i, hundred)
		}
		f.server.afterRun(func() { require.NoError(t, reset(i)) })
		ask(t, i, hundred)
		f.server.fails(errDown)
		assert.EqualValues(t, map[string]int{"this caller": 100, "others": 20}[name], most(t, i, hundred),
			name)
	}
}

// Peek returns the Result that Run would return, and counts nothing.
func TestPeek(t *testing.T) {
	f := newFleet(t, 2, fixedWindow, tripAtOnce, whole)
	i, r := f.instances[0], hundred
	same := func() {
		t.Helper()
		peeked, err := ops.Peek(t.Context(), i, &r)
		require.NoError(t, err)
		again, err := ops.Peek(t.Context(), i, &r)
		require.NoError(t, err)
		assert.Equal(t, peeked, again)
		res, _ := ask(t, i, r)
		assert.Equal(t, *peeked, res)
	}
	same()
	f.server.fails(errDown)
	ask(t, i, r)
	same()
	most(t, i, r)
	same()
	_, err := ops.Peek(t.Context(), newFallback(t, bare{f.server}, bare{f.server},
		fallback.Config{Now: f.clock.Now}), &r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// Peek counts what primary is still to be charged with.
func TestPeekWithDebts(t *testing.T) {
	eachFront(t, func(t *testing.T, to front) {
		f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
		f.server.fails(errDown)
		for range 3 {
			ask(t, f.instances[0], hundred)
		}
		f.heal(t)
		assert.EqualValues(t, 3, total(t, f.instances[0], hundred))
		assert.Zero(t, f.instances[0].Stats().Reconciled)
		res, by := ask(t, f.instances[0], hundred)
		assert.Equal(t, weir.FromPrimary, by)
		assert.EqualValues(t, 3+1, res.TotalRequests)
	})
}

// From 10 instances to 1: an instance keeps its share of a period that began with more instances.
func TestInstancesThatLeave(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			n := 10
			f := newFleet(t, 1, of, with(fallback.Config{InstancesFunc: func() int { return n }}), whole)
			i, r := f.instances[0], weir.Request{Key: "a", Limit: 1000, Duration: time.Hour}
			admitted := uint64(0)
			for range 900 {
				if res, _ := ask(t, i, r); res.Allowed() {
					admitted++
				}
			}
			f.server.fails(errDown)
			admitted += most(t, i, r)
			n = 1
			admitted += most(t, i, r)
			assert.LessOrEqual(t, admitted, uint64(1000))
			f.clock.Advance(3 * time.Hour)
			assert.EqualValues(t, 1000, most(t, i, r), "the next period has the whole limit")
		})
	}
}

// A denial does not let a caller use the share of an instance that leaves afterwards.
func TestInstancesThatLeaveAfterADenial(t *testing.T) {
	r := weir.Request{Key: "a", Limit: 1000, Duration: time.Hour}
	for name, of := range map[string]strategyOf{"FixedWindow": fixedWindow,
		"SlidingLog": strategies()["SlidingLog"]} {
		t.Run(name, func(t *testing.T) {
			n := 2
			f := newFleet(t, 1, of, with(fallback.Config{InstancesFunc: func() int { return n }}), whole)
			i := f.instances[0]
			for range 999 {
				ask(t, i, r)
				f.clock.Advance(time.Hour / 1000)
			}
			ask(t, i, r)
			denied, _ := ask(t, i, r)
			require.False(t, denied.Allowed())
			f.server.fails(errDown)
			n = 1
			if name == "SlidingLog" {
				f.clock.Advance(time.Hour / 500) // the instant at which the denial ends
			}
			assert.LessOrEqual(t, most(t, i, r), uint64(2))
		})
	}
	t.Run("more than the limit", func(t *testing.T) {
		n := 2
		f := newFleet(t, 1, fixedWindow, with(fallback.Config{InstancesFunc: func() int {
			return n
		}}), whole)
		i, big := f.instances[0], r
		most(t, i, r)
		n, big.Cost = 1, 1001
		ask(t, i, big)
		f.server.fails(errDown)
		assert.Zero(t, most(t, i, r))
	})
}

func TestInstancesFunc(t *testing.T) {
	clock, n := weirtest.NewClock(time.Unix(1e9, 0)), 4
	f := newFallback(t, weirtest.FailAll(errDown), limiterOn(t, clock.Now).FixedWindow(), fallback.Config{
		Now: clock.Now, Instances: 5, InstancesFunc: func() int { return n },
	})
	assert.EqualValues(t, 25, most(t, f, hundred))
	n = 2
	assert.EqualValues(t, 0, most(t, f, hundred), "the share of 25 holds until the period is over")
	clock.Advance(time.Minute)
	assert.EqualValues(t, 50, most(t, f, hundred))
	clock.Advance(time.Minute)
	n = 0
	assert.EqualValues(t, 20, most(t, f, hundred), "below 1 Instances holds")
}

// During an outage, Results describe the instance's share.
func TestResultsOfAShare(t *testing.T) {
	f := newFleet(t, 4, fixedWindow, tripAtOnce, whole)
	f.server.fails(errDown)
	i := f.instances[0]
	res, _ := ask(t, i, hundred)
	assert.EqualValues(t, 76, res.TotalRequests, "24 of 25 are left")
	big := hundred
	big.Cost = 26
	res, _ = ask(t, i, big)
	assert.Equal(t, weir.Result{TotalRequests: 76, ExpiresAt: res.ExpiresAt}, res)
	assert.WithinRange(t, res.ExpiresAt, f.clock.Now().Add(time.Second),
		f.clock.Now().Add(1100*time.Millisecond),
		"over the share, not over the limit: it passes when primary is back")
	big.Cost = 101
	res, _ = ask(t, i, big)
	assert.True(t, !res.Allowed() && res.ExpiresAt.IsZero(), "over the limit")
}
