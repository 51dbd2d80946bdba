package near_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

func TestLeaseNeedsFewRoundTrips(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 100, Now: clock.Now})
	r := weir.Request{Key: "a", Limit: 1e6, Duration: time.Hour}
	for range 20_000 {
		ask(t, l, r)
	}
	assert.EqualValues(t, 200, server.calls.Load())
	assert.Equal(t, near.LeaseStats{Leased: 19_800, Fetched: 200, Keys: 1}, l.Stats())
}

// Blocks get smaller near the limit, so the whole limit can be admitted and never more, whichever
// instances make the requests.
func TestLeaseAdmitsTheWholeLimit(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		for _, limit := range []uint64{1, 10, 100, uint64(slow.N(250, 1_000, 10_000))} {
			for _, block := range []int{1, 10, 100} {
				t.Run(fmt.Sprintf("%d instances, limit %d, block %d", n, limit, block), func(t *testing.T) {
					clock, server := minute(t)
					var fleet []weir.Strategy
					for range n {
						fleet = append(fleet, near.NewLeases(server,
							near.LeaseConfig{Block: block, Instances: n, Now: clock.Now}))
					}
					rng := rand.New(rand.NewPCG(limit, uint64(block)))
					r := weir.Request{Key: "a", Limit: limit, Duration: time.Hour}
					total := uint64(0)
					for range 3 * limit {
						if ask(t, fleet[rng.IntN(n)], r).Allowed() {
							total++
						}
					}
					assert.LessOrEqual(t, total, limit)
					for _, l := range fleet {
						total += most(t, l, r)
					}
					assert.Equal(t, limit, total, "the whole limit is available")
				})
			}
		}
	}
}

// spend makes requests of random cost and refunds on three instances, and returns the most that one
// window admitted over the limit.
func spend(t *testing.T, seed uint64, front func(s weir.Strategy, clock *weirtest.Clock,
	rng *rand.Rand) weir.Strategy) (over uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	clock, server := minute(t)
	var fleet []weir.Strategy
	for range 3 {
		fleet = append(fleet, front(server, clock, rng))
	}
	r := weir.Request{Key: "a", Limit: 1 + rng.Uint64N(200), Duration: time.Minute}
	spent := map[time.Time]uint64{}
	for range 500 {
		clock.Advance(time.Duration(rng.Int64N(int64(time.Second))))
		s, r := fleet[rng.IntN(3)], r
		r.Cost = 1 + rng.Uint64N(5)
		res := ask(t, s, r)
		if !res.Allowed() {
			continue
		}
		if ops.Can(s, weir.OpReturn) && rng.IntN(10) == 0 {
			require.NoError(t, ops.Refund(t.Context(), s, &r, &res))
			continue
		}
		end := clock.Now().Truncate(time.Minute).Add(time.Minute)
		spent[end] += r.Cost
		over = max(over, spent[end]-min(spent[end], r.Limit))
	}
	return over
}

func TestLeaseNeverOverAdmits(t *testing.T) {
	for seed := range uint64(slow.N(15, 160, 4000)) {
		over := spend(t, seed, func(s weir.Strategy, clock *weirtest.Clock,
			rng *rand.Rand) weir.Strategy {
			s = near.NewDenials(s, near.DenialsConfig{Size: 8, Now: clock.Now})
			return near.NewLeases(s, near.LeaseConfig{Block: 1 + rng.IntN(50), Instances: 3, Now: clock.Now})
		})
		require.Zero(t, over, "seed %d", seed)
	}
}

// The control: the same test rejects a lease that takes one hit from its block for any cost.
func TestLeaseNeverOverAdmitsControl(t *testing.T) {
	over := uint64(0)
	for seed := range uint64(20) {
		over += spend(t, seed, func(s weir.Strategy, _ *weirtest.Clock, _ *rand.Rand) weir.Strategy {
			return &overAdmitting{Strategy: s}
		})
	}
	assert.Positive(t, over)
}

type overAdmitting struct {
	weir.Strategy
	left uint64
	last weir.Result
}

func (e *overAdmitting) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if e.left < r.Cost {
		q := *r
		q.Cost = max(r.Cost, min(r.Limit/2, 20))
		res, err := e.Strategy.Run(ctx, &q)
		if err != nil || !res.Allowed() || q.Cost < r.Cost {
			return res, err
		}
		e.left, e.last = q.Cost, *res
	}
	e.left-- // the bug: ignores the cost
	res := e.last
	return &res, nil
}

// Of other strategies nothing is leased, even if what they answer looks like a window, and no hits
// are lost.
func TestLeaseOnlyOfLapsers(t *testing.T) {
	for name, of := range map[string]func(*weir.Limiter) weir.Strategy{
		"SlidingLog": func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		"Counter":    func(l *weir.Limiter) weir.Strategy { return l.Counter() },
		"no known type": func(l *weir.Limiter) weir.Strategy {
			return struct{ weir.Strategy }{l.FixedWindow()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, _ := minute(t)
			l := near.NewLeases(of(limiterOn(t, clock.Now)), near.LeaseConfig{Block: 10, Now: clock.Now})
			assert.EqualValues(t, 100, most(t, l, hundred))
			assert.Zero(t, l.Stats().Leased)
		})
	}
}

// No block is fetched near the end of a window, where a lease is not allowed.
func TestLeaseAtTheEndOfAWindow(t *testing.T) {
	for name, front := range map[string]func(weir.Strategy) weir.Strategy{
		"that gives back":   func(s weir.Strategy) weir.Strategy { return s },
		"that only decides": func(s weir.Strategy) weir.Strategy { return bare{weir.CounterOf(s)} },
	} {
		for _, skew := range []time.Duration{0, time.Minute} { // near the end, and always
			clock, server := minute(t)
			l := near.NewLeases(front(server), near.LeaseConfig{Block: 10, Skew: skew, Now: clock.Now})
			clock.Advance(time.Minute - 5*time.Millisecond)
			assert.EqualValues(t, 100, most(t, l, hundred), name)
			clock.Advance(time.Minute + time.Second)
			ask(t, l, hundred)
			ask(t, l, hundred)
			assert.Equal(t, skew == 0, l.Stats().Leased > 0, "later windows are leased")
		}
	}
}

// A server whose clock is 50 ms ahead is in the next window before this process is. Only those 50
// ms are not leased.
func TestLeaseOfAClockThatIsAhead(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 59, int(980*time.Millisecond), time.UTC))
	ahead := weirtest.NewClock(clock.Now().Add(50 * time.Millisecond))
	l := near.NewLeases(limiterOn(t, ahead.Now).FixedWindow(), near.LeaseConfig{Block: 10, Now: clock.Now})
	assert.EqualValues(t, 1, ask(t, l, hundred).TotalRequests, "the unused hits were refunded")
	assert.EqualValues(t, 2, ask(t, l, hundred).TotalRequests)
	for range 3 {
		before := l.Stats().Leased
		clock.Advance(10 * time.Second)
		ahead.Advance(10 * time.Second)
		for range 90 {
			ask(t, l, hundred)
		}
		assert.GreaterOrEqual(t, l.Stats().Leased-before, uint64(75))
		clock.Advance(50 * time.Second)
		ahead.Advance(50 * time.Second)
	}
}

// distant is a server with a delay that counts its concurrent calls.
type distant struct {
	*remote
	takes, back  time.Duration // the way to the server, and back
	inside, most *atomic.Int64
}

func (d distant) About() *weir.About { return d.remote.About().By(d) }

func (d distant) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, d, r)
}

func (d distant) Do(ctx context.Context, ops []*weir.Op) {
	n := d.inside.Add(1)
	defer d.inside.Add(-1)
	for m := d.most.Load(); n > m && !d.most.CompareAndSwap(m, n); m = d.most.Load() {
	}
	select {
	case <-time.After(d.takes):
		d.remote.Do(ctx, ops)
		time.Sleep(d.back) // in a bubble
	case <-ctx.Done():
		for _, op := range ops {
			op.Err = ctx.Err()
		}
	}
}

// far returns a distant server.
func far(t *testing.T, takes time.Duration) distant {
	return distant{remotely(limiterOn(t, nil).FixedWindow()), takes, 0, new(atomic.Int64), new(atomic.Int64)}
}

// With 64 concurrent callers on each of three instances, each instance makes one fetch at a time,
// and the limit holds.
func TestLeaseConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 20_000
		server := far(t, time.Millisecond)
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for range 3 {
			l := near.NewLeases(server, near.LeaseConfig{Block: 100, Instances: 3})
			for range 64 {
				callers.Go(func() {
					r := weir.Request{Key: "a", Limit: limit, Duration: time.Hour}
					for {
						res, err := l.Run(t.Context(), &r)
						if !assert.NoError(t, err) || !res.Allowed() {
							return
						}
						admitted.Add(1)
					}
				})
			}
		}
		callers.Wait()
		assert.LessOrEqual(t, server.most.Load(), int64(3))
		assert.LessOrEqual(t, admitted.Load(), int64(limit))
		assert.GreaterOrEqual(t, admitted.Load(), int64(limit-6),
			"some callers ended while another held the last block")
		t.Logf("%d admitted in %d round trips", admitted.Load(), server.calls.Load())
	})
}

// Of many concurrent first requests none is denied while hits remain, even if one of them fetches
// them all.
func TestLeaseOfManyFirstRequests(t *testing.T) {
	for range 20 {
		const limit = 400
		server := far(t, 0).remote
		// the others wait for the first fetch
		server.afterRun(func() { time.Sleep(5 * time.Millisecond) })
		l := near.NewLeases(server, near.LeaseConfig{Block: 100})
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for range limit {
			callers.Go(func() {
				res, err := l.Run(t.Context(),
					&weir.Request{Key: "a", Limit: limit, Duration: 365 * 24 * time.Hour})
				assert.NoError(t, err)
				admitted.Add(int64(res.State))
			})
		}
		callers.Wait()
		assert.EqualValues(t, limit, admitted.Load())
	}
}

// A caller waits for another caller's fetch until its own context is done. Its deadline does not
// fail the fetch for others.
func TestLeaseRespectsEachContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := far(t, 20*time.Millisecond)
		l := near.NewLeases(server, near.LeaseConfig{Block: 10})
		short := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			r := hundred
			_, err := l.Run(ctx, &r)
			short <- err
		}()
		time.Sleep(time.Millisecond)
		assert.True(t, ask(t, l, hundred).Allowed())
		assert.ErrorIs(t, <-short, context.DeadlineExceeded)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		r := weir.Request{Key: "b", Limit: 10, Duration: time.Hour}
		start := time.Now()
		_, err := l.Run(ctx, &r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Millisecond, time.Since(start))
		time.Sleep(time.Second)
	})
}

// What is taken for a caller who leaves is left for others, and nothing more is taken for it.
func TestLeaseOfACallerWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := far(t, 10*time.Millisecond)
		l := near.NewLeases(server, near.LeaseConfig{Block: 1})
		r := weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
		var callers sync.WaitGroup
		for i, leaves := range []time.Duration{time.Hour, 15 * time.Millisecond, time.Hour,
			8 * time.Millisecond} { // the first has a call of its own, and the last leaves before any
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), leaves)
				defer cancel()
				r := r
				r.Cost = min(5, 1+4*uint64(i))
				res, err := l.Run(ctx, &r)
				if i%2 == 1 {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Nil(t, res)
					return
				}
				assert.NoError(t, err)
				assert.EqualValues(t, 1+5*i/2, res.TotalRequests)
			})
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		r.Cost = 5
		assert.True(t, ask(t, l, r).Allowed())
		assert.Equal(t, near.LeaseStats{Leased: 1, Fetched: 2, Keys: 1}, l.Stats())
	})
}

// A call for a cost that does not fit takes only what is lacking, since what is left is counted
// already: after a Refund elsewhere that is enough.
func TestLeaseTakesWhatIsLacking(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 10, Now: clock.Now})
	r := weir.Request{Key: "a", Limit: 20, Duration: time.Minute, Cost: 8}
	for _, cost := range []uint64{1, 6} {
		r.Cost = cost
		require.True(t, ask(t, l, r).Allowed())
		clock.Advance(2 * time.Second)
	}
	require.EqualValues(t, 1, l.Stats().Fetched, "both are of one block of 10")
	r.Cost = 8
	taken := ask(t, server, r)
	for _, back := range []uint64{0, 2} {
		if r.Cost = back; back > 0 {
			require.NoError(t, ops.Refund(t.Context(), server, &r, &taken))
		}
		r.Cost = 7
		assert.Equal(t, back > 0, ask(t, l, r).Allowed(), "%d were given back", back)
	}
}

// A fetch that hangs and ignores its context does not block its key for ever.
func TestLeaseFetchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := far(t, 0), make(chan struct{})
		s.afterRun(func() { <-end })
		l := near.NewLeases(s, near.LeaseConfig{Block: 10})
		hung := make(chan struct{})
		go func() { defer close(hung); r := hundred; _, _ = l.Run(t.Context(), &r) }()
		time.Sleep(2 * time.Second)
		start := time.Now()
		assert.True(t, ask(t, l, hundred).Allowed())
		assert.Zero(t, time.Since(start))
		close(end)
		<-hung
	})
}

// If the server fails, all callers that wait for the block get the error, and hits already leased
// are still used.
func TestLeaseInAnOutage(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 10, Now: clock.Now})
	ask(t, l, hundred)
	server.fails(errDown)
	for range 9 {
		assert.True(t, ask(t, l, hundred).Allowed())
	}
	r := hundred
	_, err := l.Run(t.Context(), &r)
	assert.ErrorIs(t, err, errDown)
	server.fails(nil)
	assert.EqualValues(t, 90, most(t, l, hundred))
}

// broken is a Counter whose Do calls how.
type broken struct {
	weir.Counter
	how *func()
}

func (w broken) About() *weir.About { return w.Counter.About().By(w) }

func (w broken) Do(context.Context, []*weir.Op) { (*w.how)() }

// A strategy that panics or exits during a fetch ends neither the process nor the lease.
func TestLeaseOfABrokenStrategy(t *testing.T) {
	for name, how := range map[string]func(){"panics": func() { panic("a bug") }, "exits": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			l, r := near.NewLeases(broken{far(t, 0).remote, &how}, near.LeaseConfig{}), hundred
			res, err := l.Run(t.Context(), &r)
			assert.Nil(t, res, name)
			assert.ErrorContains(t, err, "fixed window", name)
		})
	}
}

// A block that was fetched before a Reset and arrives after it admits only the request that fetched
// it.
func TestLeaseAndAResetMeanwhile(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 50, Now: clock.Now})
	server.afterRun(func() {
		r := hundred
		require.NoError(t, ops.Reset(t.Context(), l, &r))
	})
	assert.True(t, ask(t, l, hundred).Allowed())
	assert.EqualValues(t, 100, most(t, l, hundred), "since the Reset")
}

// After a reset of a prefix nothing of its keys is leased or denied from memory, and that of others
// is.
func TestResetPrefix(t *testing.T) {
	clock, server := minute(t)
	denials := near.NewDenials(server, near.DenialsConfig{Size: 640, Now: clock.Now})
	l := near.NewLeases(denials, near.LeaseConfig{Block: 10, Now: clock.Now})
	other := hundred
	other.Key = "b"
	for range 2 {
		assert.EqualValues(t, 100, most(t, l, hundred))
		assert.False(t, ask(t, l, hundred).Allowed())
		n, err := ops.ResetPrefix(t.Context(), l, "a", nil)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		ask(t, l, hundred)
		ask(t, l, other)
		before := server.calls.Load()
		_, err = ops.ResetPrefix(t.Context(), l, "a", nil)
		require.NoError(t, err)
		ask(t, l, other)
		assert.Equal(t, before, server.calls.Load(), "the other key has its lease")
		ask(t, l, hundred)
		assert.Equal(t, before+1, server.calls.Load(), "and this one has not")
		_, err = ops.ResetPrefix(t.Context(), l, "a", nil)
		require.NoError(t, err)
	}
}

// Keys that are used once are evicted; a regular key keeps its lease.
func TestLeasesAreEvicted(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 10, Keys: 640, Now: clock.Now})
	regular := weir.Request{Key: "regular", Limit: 1e9, Duration: time.Minute}
	before := func() uint64 {
		n := server.calls.Load()
		ask(t, l, regular)
		return server.calls.Load() - n
	}
	before()
	fetches := uint64(0)
	for n := range slow.N(6_000, 25_000, 200_000) {
		ask(t, l, weir.Request{Key: fmt.Sprint(n), Limit: 1e9, Duration: time.Minute})
		if n%20 == 0 {
			clock.Advance(time.Millisecond)
			fetches += before()
		}
	}
	assert.LessOrEqual(t, l.Stats().Keys, 640)
	assert.LessOrEqual(t, fetches, uint64(slow.N(6_000, 25_000, 200_000)/20/8),
		"of every 20th request")
}

// Seed includes the hits that are leased.
func TestLeaseSeedIncludesLeasedHits(t *testing.T) {
	clock, server := minute(t)
	l, r := near.NewLeases(server, near.LeaseConfig{Block: 10, Now: clock.Now}), hundred
	last := ask(t, l, r)
	server.Counter = limiterOn(t, clock.Now).FixedWindow()
	require.NoError(t, ops.Seed(t.Context(), l, &r, &last))
	assert.EqualValues(t, 99, most(t, l, r), "one hit was admitted before")
}

// A charge over the limit ends the lease, even if its cost is the largest possible.
func TestLeaseAndACharge(t *testing.T) {
	for _, cost := range []uint64{200, math.MaxUint64} {
		clock, _ := minute(t)
		l, r := near.NewLeases(limiterOn(t, clock.Now).FixedWindow(),
			near.LeaseConfig{Block: 10, Now: clock.Now}), hundred
		ask(t, l, hundred)
		r.Cost = cost
		for range 2 {
			require.NoError(t, ops.Charge(t.Context(), l, &r))
			assert.False(t, ask(t, l, hundred).Allowed(), "%d", cost)
		}
	}
}

// A charge whose Op has the Backlog of an earlier use takes from the lease all the same.
func TestAChargeHasNoBacklog(t *testing.T) {
	clock, _ := minute(t)
	l := near.NewLeases(limiterOn(t, clock.Now).FixedWindow(),
		near.LeaseConfig{Block: 10, Now: clock.Now})
	ask(t, l, hundred)
	charge := &weir.Op{Verb: weir.OpCharge, Request: hundred, Backlog: new(weir.Backlog)}
	charge.Cost = 95
	require.NoError(t, weir.Do(t.Context(), l, charge))
	admitted := 0
	for range 50 {
		if ask(t, l, hundred).Allowed() {
			admitted++
		}
	}
	assert.Equal(t, 4, admitted)
}

// Hits refunded to a lease are available to a request whose denial is cached.
func TestLeaseOutsideOfDenialsAndARefund(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(near.NewDenials(server, near.DenialsConfig{Now: clock.Now}),
		near.LeaseConfig{Block: 10, Now: clock.Now})
	one, four := hundred, hundred
	four.Cost = 4
	last := ask(t, l, one)
	for range 97 {
		last = ask(t, l, one)
	}
	require.EqualValues(t, 98, last.TotalRequests)
	require.False(t, ask(t, l, four).Allowed())
	for range 2 {
		require.NoError(t, ops.Refund(t.Context(), l, &one, &last))
	}
	assert.True(t, ask(t, l, four).Allowed())
	assert.False(t, ask(t, l, one).Allowed())
}

// A request whose cost exceeds its limit was never admitted, so that nothing of it returns to the
// lease.
func TestRefundOfMoreThanTheLimit(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Skew: -1, Now: clock.Now})
	r := hundred
	taken := ask(t, l, r)
	ask(t, l, r)
	before := ask(t, l, r)
	r.Cost = r.Limit + 1
	require.NoError(t, ops.Refund(t.Context(), l, &r, &taken))
	assert.Equal(t, before.TotalRequests+1, ask(t, l, hundred).TotalRequests)
}

// A strategy with its own limits decides on each request itself: the request's limit and Duration
// do not say how much of it a lease may hold, or until when.
func TestLeaseOfAStrategyWithItsOwnLimits(t *testing.T) {
	clock, server := minute(t)
	m, err := weir.NewLimit(server, 100, time.Minute)
	require.NoError(t, err)
	own := weir.CounterOf(m)
	for limit, key := range map[uint64]string{10: "below", 100: "equal", 1000: "above"} {
		l := near.NewLeases(own, near.LeaseConfig{Skew: -1, Now: clock.Now})
		assert.EqualValues(t, 100,
			most(t, l, weir.Request{Key: key, Limit: limit, Duration: time.Minute}), key)
	}
}
