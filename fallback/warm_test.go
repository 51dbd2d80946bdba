package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

var hundred = weir.Request{Key: "a", Limit: 100, Duration: time.Minute}

func strategies() map[string]strategyOf {
	return map[string]strategyOf{
		"FixedWindow":   fixedWindow,
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"SlidingLog":    func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
	}
}

// At the switch each caller goes on from what was spent, in the share of this instance, and back on primary from what was
// spent meanwhile. The clock stands still, so every strategy says the same.
func TestGoesOnFromWhatWasSpent(t *testing.T) {
	for name, of := range strategies() {
		for _, n := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				f := newFleet(t, n, of, fallback.Config{Failures: 1}, whole)
				for i := range 40 {
					ask(t, f.instances[i%n], hundred)
				}
				for _, i := range f.instances { // now all know what is counted, within N
					ask(t, i, hundred)
				}
				spent := 40 + n
				f.server.fails(errDown)
				total := 0
				for _, i := range f.instances {
					total += int(most(t, i, hundred))
				}
				remains := 100 - spent
				assert.InDelta(t, remains, total, float64(n), "the rest, shared out")
				f.server.fails(nil)
				f.clock.Advance(2 * time.Second)
				for _, i := range f.instances { // each pays before anybody takes the rest
					if res, _ := ask(t, i, hundred); res.Allowed() {
						total++
					}
				}
				for _, i := range f.instances {
					total += int(most(t, i, hundred))
				}
				refilled := 0
				if name == "TokenBucket" {
					refilled = 4 // in the two seconds
				}
				assert.InDelta(t, remains+refilled, total, float64(2*n), "nobody's budget was reset")
			})
		}
	}
}

// The bound of New is attained: one instance takes all, the others were told nothing.
func TestWorstCase(t *testing.T) {
	f := newFleet(t, 3, fixedWindow, fallback.Config{}, whole)
	total := most(t, f.instances[0], hundred)
	f.server.fails(errDown)
	for _, i := range f.instances {
		total += most(t, i, hundred)
	}
	assert.Equal(t, bound(100, 3), total)
}

// The control: instances that do not know of each other break the bound.
func TestWorstCaseWithoutShares(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	total := uint64(0)
	for range 3 {
		f := newFallback(t, weirtest.FailAll(errDown), limiterOn(t, clock).FixedWindow(), fallback.Config{Now: clock.Now})
		total += most(t, f, hundred)
	}
	assert.Greater(t, total, bound(100, 3))
}

// A server that comes back empty is told what it had counted, before it decides.
func TestServerThatForgets(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, of, fallback.Config{Failures: 1}, whole)
			for range 60 {
				ask(t, f.instances[0], hundred)
			}
			f.server.fails(errDown)
			for range 10 {
				ask(t, f.instances[0], hundred)
			}
			f.server.restart()
			f.clock.Advance(1100 * time.Millisecond)
			res, by := ask(t, f.instances[0], hundred)
			assert.Equal(t, fallback.FromPrimary, by)
			assert.InDelta(t, 71, res.TotalRequests, 2)
			again := f.server.told.Load()
			ask(t, f.instances[0], hundred)
			assert.Equal(t, again, f.server.told.Load(), "it is told once")
		})
	}
}

// What local admitted in a period that is over is not carried into the next.
func TestDebtsLapse(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, of, fallback.Config{Failures: 1}, whole)
			f.server.fails(errDown)
			most(t, f.instances[0], hundred)
			f.server.fails(nil)
			f.clock.Advance(3 * time.Minute)
			assert.EqualValues(t, 100, most(t, f.instances[0], hundred))
			assert.Zero(t, f.instances[0].Stats().Carried)
		})
	}
}

// An hour of outage leaves no hour of debts: what has run off the bucket is not owed.
func TestDebtsRunOff(t *testing.T) {
	f := newFleet(t, 1, strategies()["TokenBucket"], fallback.Config{Failures: 1}, whole)
	f.server.fails(errDown)
	for range 3600 {
		ask(t, f.instances[0], hundred)
		f.clock.Advance(time.Second)
	}
	f.server.fails(nil)
	f.clock.Advance(time.Second)
	ask(t, f.instances[0], hundred)
	assert.LessOrEqual(t, f.instances[0].Stats().Carried, uint64(100*9/8), "a bucketful, to the eighth of a minute")
}

// What was given back is not told to a server that comes back empty.
func TestServerThatForgetsIsNotToldOfRefunds(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
	i, r := f.instances[0], hundred
	for range 10 {
		taken, _ := ask(t, i, r)
		assert.NoError(t, i.Refund(t.Context(), &r, &taken))
	}
	f.server.fails(errDown)
	ask(t, i, r)
	f.server.restart()
	f.clock.Advance(2 * time.Second)
	res, _ := ask(t, i, r)
	assert.EqualValues(t, 2, res.TotalRequests)
}

// One caller's debts are paid by that caller's next request, and no other's.
func TestCarriedCallerByCaller(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
	one, two := hundred, hundred
	two.Key = "b"
	f.server.fails(errDown)
	for range 30 {
		ask(t, f.instances[0], one)
		ask(t, f.instances[0], two)
	}
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	res, _ := ask(t, f.instances[0], one)
	assert.EqualValues(t, 31, res.TotalRequests)
	assert.EqualValues(t, 30, f.instances[0].Stats().Carried)
	res, _ = ask(t, f.instances[0], two)
	assert.EqualValues(t, 31, res.TotalRequests)
}

// A charge that fails is kept, and tried again before primary decides.
func TestChargeThatFails(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
	i := f.instances[0]
	f.server.fails(errDown)
	for range 30 {
		ask(t, i, hundred)
	}
	for range 5 {
		f.clock.Advance(2 * time.Second)
		_, by := ask(t, i, hundred)
		assert.Equal(t, fallback.FromLocal, by)
	}
	assert.Equal(t, uint64(1), f.server.runs.Load(), "primary is not asked before it is told")
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	res, _ := ask(t, i, hundred)
	assert.EqualValues(t, 36, res.TotalRequests)
}

// What a caller is shown in an outage is what this instance has left.
func TestResultsOfAShare(t *testing.T) {
	f := newFleet(t, 4, fixedWindow, fallback.Config{Failures: 1, Rand: func() float64 { return 0 }}, whole)
	f.server.fails(errDown)
	i := f.instances[0]
	res, _ := ask(t, i, hundred)
	assert.EqualValues(t, 76, res.TotalRequests, "24 of 25 are left")
	big := hundred
	big.Cost = 26
	res, _ = ask(t, i, big)
	assert.Equal(t, weir.Result{TotalRequests: 76, ExpiresAt: f.clock.Now().Add(time.Second)}, res,
		"over the share, not over the limit: it passes when primary is back")
	big.Cost = 101
	res, _ = ask(t, i, big)
	assert.True(t, !res.Allowed() && res.ExpiresAt.IsZero(), "over the limit")
}

func TestInstancesFunc(t *testing.T) {
	clock, n := weirtest.NewClock(time.Unix(1e9, 0)), 4
	f := newFallback(t, weirtest.FailAll(errDown), limiterOn(t, clock).FixedWindow(), fallback.Config{
		Now: clock.Now, InstancesFunc: func() int { return n },
	})
	assert.EqualValues(t, 25, most(t, f, hundred))
	n = 2
	assert.EqualValues(t, 25, most(t, f, hundred))
	n = 0
	assert.EqualValues(t, 50, most(t, f, hundred), "below 1 counts as 1")
}

// The ledger is bounded. What it has no room for is not carried, and counted.
func TestLedgerIsBounded(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1, MaxCallers: 64}, whole)
	i := f.instances[0]
	flood := func() {
		for n := range 10_000 {
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
	assert.EqualValues(t, 10_000, stats.Dropped+64, "what is owed is not thrown out for what is new")
	f.clock.Advance(time.Minute)
	flood()
	assert.EqualValues(t, 20_000, i.Stats().Dropped+128, "and makes room when its period is over")
}

// As many callers as there are numbers is no bound, and no mistake.
func TestLedgerWithoutABound(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1, MaxCallers: math.MaxInt}, whole)
	f.server.fails(errDown)
	ask(t, f.instances[0], hundred)
	stats := f.instances[0].Stats()
	assert.Equal(t, 1, stats.Callers)
	assert.Zero(t, stats.Dropped)
}

// A refund goes to whoever has counted.
func TestRefund(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1}, whole)
	i, r := f.instances[0], hundred
	taken, _ := ask(t, i, r)
	assert.NoError(t, i.Refund(t.Context(), &r, &taken))
	assert.EqualValues(t, 100, most(t, i, r))
	f.clock.Advance(time.Minute)
	f.server.fails(errDown)
	taken, _ = ask(t, i, r)
	ask(t, i, r)
	assert.NoError(t, i.Refund(t.Context(), &r, &taken))
	assert.EqualValues(t, 99, most(t, i, r))
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	assert.EqualValues(t, 0, most(t, i, r))
	assert.EqualValues(t, 100, i.Stats().Carried)
	assert.NoError(t, i.Refund(t.Context(), &r, &taken))
	assert.EqualValues(t, 1, most(t, i, r), "charged to primary, given back by primary")
}

// uncharged is a primary that can give back and that cannot be charged.
type uncharged struct{ weir.Strategy }

func (p uncharged) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	return p.Strategy.(weir.Refunder).Refund(ctx, r, taken)
}

// What local admitted and no debt tells of is not given back by primary, which has not counted it.
func TestRefundOfWhatIsNotOwed(t *testing.T) {
	for name, row := range map[string]struct {
		front func(weir.Strategy) weir.Strategy
		flood int // callers who fill the ledger
	}{
		"no room in the ledger": {whole, 10_000},
		"no charger":            {func(s weir.Strategy) weir.Strategy { return uncharged{s} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, fallback.Config{Failures: 1, MaxCallers: 64}, row.front)
			i, r := f.instances[0], hundred
			for range 50 {
				ask(t, i, r)
			}
			f.server.fails(errDown)
			for n := range row.flood {
				ask(t, i, weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: time.Minute})
			}
			taken, by := ask(t, i, r)
			require.Equal(t, fallback.FromLocal, by)
			f.server.fails(nil)
			f.clock.Advance(2 * time.Second)
			for range 20 {
				require.NoError(t, i.Refund(t.Context(), &r, &taken))
			}
			assert.EqualValues(t, 50, most(t, i, r), "primary has counted 50")
			f.clock.Advance(time.Minute)
			taken, _ = ask(t, i, r)
			require.NoError(t, i.Refund(t.Context(), &r, &taken))
			assert.EqualValues(t, 100, most(t, i, r), "of the next window all is known")
		})
	}
}

// A refund that is the probe, and is left behind, has nothing of its caller's.
func TestRefundLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &lateRefund{Fake: weirtest.FailAll(errDown), end: make(chan struct{})}
		f := newFallback(t, p, local(t), fallback.Config{Failures: 1})
		r, taken := hundred, weir.Result{State: weir.Allow, ExpiresAt: time.Now().Add(time.Hour)}
		ask(t, f, r)
		require.NoError(t, f.Reset(t.Context(), &r)) // nothing is owed
		time.Sleep(2 * time.Second)
		require.NoError(t, f.Refund(t.Context(), &r, &taken))
		r.Key, taken = "another", weir.Result{}
		close(p.end)
		synctest.Wait()
		assert.Equal(t, "a", p.key)
	})
}

// lateRefund looks at what it is to give back after its time.
type lateRefund struct {
	*weirtest.Fake
	end chan struct{}
	key string
}

func (p *lateRefund) Refund(_ context.Context, r *weir.Request, taken *weir.Result) error {
	<-p.end
	p.key = r.Key
	return errors.Join(errDown, fmt.Errorf("%v", taken))
}

func TestPeek(t *testing.T) {
	f := newFleet(t, 2, fixedWindow, fallback.Config{Failures: 1}, whole)
	i, r := f.instances[0], hundred
	peek := func(want uint64, why string) {
		t.Helper()
		for range 2 {
			res, err := i.Peek(t.Context(), &r)
			assert.NoError(t, err)
			assert.Equal(t, want, res.TotalRequests, why)
		}
	}
	ask(t, i, r)
	peek(2, "primary's")
	f.server.fails(errDown)
	ask(t, i, r)
	peek(50+3, "local's: one of primary's as a half rounded up, one of its own, and this")
	f.server.fails(nil)
	peek(50+3, "it uses up no probe")
	f.clock.Advance(2 * time.Second)
	ask(t, i, r)
	peek(4, "primary's")
}

// slowCharge is a primary that takes its time to charge, and must not be asked for that caller meanwhile.
type slowCharge struct {
	*server
	owes  string // the caller who owes
	early atomic.Int64
	paid  atomic.Bool
}

func (p *slowCharge) Charge(ctx context.Context, r *weir.Request) error {
	time.Sleep(time.Millisecond)
	err := p.server.Charge(ctx, r)
	p.paid.Store(err == nil)
	return err
}

func (p *slowCharge) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if _, err := p.up(); err == nil && r.Key == p.owes && !p.paid.Load() {
		p.early.Add(1)
	}
	return p.server.Run(ctx, r)
}

// Of 64 callers who owe one debt one pays, once, and primary decides for none of them before that.
func TestDebtIsPaidOnceAndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		p := &slowCharge{server: newServer(func() weir.Strategy { return l.FixedWindow() }), owes: "a"}
		f := newFallback(t, p, local(t), fallback.Config{Failures: 1})
		p.fails(errDown)
		for range 30 {
			ask(t, f, hundred)
		}
		p.fails(nil)
		time.Sleep(2 * time.Second)
		other := hundred
		other.Key = "b"
		ask(t, f, other) // closes the breaker
		require.Equal(t, fallback.Closed, f.Stats().State)
		told := p.told.Load()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { assert.Equal(t, fallback.FromPrimary, second(ask(t, f, hundred))) })
		}
		all.Wait()
		assert.Equal(t, told+1, p.told.Load())
		assert.Zero(t, p.early.Load())
		assert.EqualValues(t, 30+64, first(ask(t, f, hundred)).TotalRequests-1)
	})
}

// Who gives back while primary is told of it does so where it is counted afterwards, whether primary heard or not.
func TestRefundWhileDebtsArePaid(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer l.Close()
			p := &slowCharge{server: newServer(func() weir.Strategy { return l.FixedWindow() }), owes: "a"}
			f := newFallback(t, p, local(t), fallback.Config{Failures: 1})
			p.fails(errDown)
			r := hundred
			taken, _ := ask(t, f, r)
			ask(t, f, r)
			p.fails(nil)
			time.Sleep(2 * time.Second)
			if lost {
				p.fails(errDown)
			}
			done := make(chan struct{})
			go func() { defer close(done); ask(t, f, r) }() // pays the two, and takes one
			time.Sleep(500 * time.Microsecond)
			require.NoError(t, f.Refund(t.Context(), &r, &taken))
			<-done
			res, err := f.Peek(t.Context(), &r)
			require.NoError(t, err)
			assert.EqualValues(t, 2+1-1+1, res.TotalRequests, "lost: %v", lost)
		})
	}
}

func first[A, B any](a A, _ B) A { return a }
