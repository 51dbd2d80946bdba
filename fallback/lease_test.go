package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/weirtest"
)

// Primary sees one kth of the traffic.
func TestLeaseAsksSeldom(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Lease: 100}, whole)
	r := weir.Request{Key: "a", Limit: 1e6, Duration: time.Hour}
	for range 100_000 {
		ask(t, f.instances[0], r)
	}
	assert.EqualValues(t, 1000, f.server.runs.Load())
	stats := f.instances[0].Stats()
	assert.Equal(t, []uint64{1000, 99_000}, []uint64{stats.Primary, stats.Lease})
}

// Near the limit blocks get smaller: whoever asks, nearly all of the budget is given out, and never more.
func TestLeaseGivesOutTheWholeBudget(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		for _, limit := range []uint64{1, 10, 100, uint64(slow.N(500, 10_000, 10_000))} {
			for _, k := range []int{1, 10, 100} {
				t.Run(fmt.Sprintf("%d instances, limit %d, k %d", n, limit, k), func(t *testing.T) {
					f := newFleet(t, n, fixedWindow, fallback.Config{Lease: k}, whole)
					rng := rand.New(rand.NewPCG(limit, uint64(k)))
					r := weir.Request{Key: "a", Limit: limit, Duration: time.Hour}
					total := uint64(0)
					for range 3 * limit {
						if res, _ := ask(t, f.instances[rng.IntN(n)], r); res.Allowed() {
							total++
						}
					}
					assert.LessOrEqual(t, total, limit)
					for _, i := range f.instances {
						total += most(t, i, r)
					}
					assert.Equal(t, limit, total, "all of it is to be had")
					t.Logf("%d admitted in %d round trips", total, f.server.runs.Load())
				})
			}
		}
	}
}

// Random costs, limits that change, refunds, windows that end, instances that come and go dark: in no window is more
// admitted than the limit. Without failures what is admitted is what primary counted or less.
func TestLeaseNeverOverAdmits(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := newFleet(t, 3, fixedWindow, fallback.Config{Lease: 1 + rng.IntN(50), DenialCache: rng.IntN(2) * 10}, whole)
		r := weir.Request{Key: "a", Limit: 1 + rng.Uint64N(200), Duration: time.Minute}
		spent := map[time.Time]uint64{} // by the window it was admitted in
		for range 500 {
			f.clock.Advance(time.Duration(rng.Int64N(int64(time.Second))))
			i, r := f.instances[rng.IntN(3)], r
			r.Cost = 1 + rng.Uint64N(5)
			res, _ := ask(t, i, r)
			if !res.Allowed() {
				continue
			}
			end := f.clock.Now().Truncate(time.Minute).Add(time.Minute)
			require.True(t, res.ExpiresAt.Equal(end), "seed %d: admitted in a window that is not now", seed)
			if rng.IntN(10) == 0 {
				require.NoError(t, i.Refund(t.Context(), &r, &res))
				continue
			}
			spent[end] += r.Cost
			require.LessOrEqual(t, spent[end], r.Limit, "seed %d", seed)
		}
	}
}

// greedy is the negative control: a lease that does not end with its window.
type greedy struct{ weir.Strategy }

func (g greedy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := g.Strategy.Run(ctx, r)
	if err == nil && res.Allowed() {
		res.ExpiresAt = res.ExpiresAt.Add(-res.ExpiresAt.Sub(time.Unix(0, 0)) % (24 * time.Hour)).Add(24 * time.Hour)
	}
	return res, err
}

func TestLeaseOfAPrimaryThatLies(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Lease: 50}, func(s weir.Strategy) weir.Strategy { return greedy{s} })
	r := weir.Request{Key: "a", Limit: 1000, Duration: time.Minute}
	for range 10 {
		ask(t, f.instances[0], r)
	}
	assert.EqualValues(t, 10, f.server.runs.Load(), "an end that is not that of the window is not leased")
}

// Strategies that count hits one by one, or evenly, cannot be leased: the first answer shows it, and nothing is lost.
func TestLeaseOnlyOfFixedWindows(t *testing.T) {
	for name, of := range strategies() {
		if name == "FixedWindow" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, of, fallback.Config{Lease: 10}, whole)
			f.clock.Advance(7*time.Second + 7)
			assert.EqualValues(t, 100, most(t, f.instances[0], hundred))
			assert.Zero(t, f.instances[0].Stats().Lease)
			for n := range 1000 { // at all times of a window somebody new
				f.clock.Advance(7*time.Millisecond + 7)
				r := weir.Request{Key: fmt.Sprint(n), Limit: 1 << 40, Duration: time.Second}
				ask(t, f.instances[0], r)
				ask(t, f.instances[0], r)
			}
			assert.Zero(t, f.instances[0].Stats().Lease)
		})
	}
}

// Where a window can't be leased, at its end, nobody takes a block of it but the first to see, who gives the rest back.
func TestLeaseAtTheEndOfAWindow(t *testing.T) {
	for name, front := range map[string]func(weir.Strategy) weir.Strategy{"whole": whole, "bare": bareFront} {
		for _, skew := range []time.Duration{0, time.Minute} { // the end, or all of it
			f := newFleet(t, 1, fixedWindow, fallback.Config{Lease: 10, Skew: skew}, front)
			f.clock.Advance(time.Minute - 5*time.Millisecond)
			i := f.instances[0]
			assert.EqualValues(t, map[string]int{"whole": 100, "bare": 91}[name], most(t, i, hundred), name)
			f.clock.Advance(time.Minute + time.Second)
			ask(t, i, hundred)
			ask(t, i, hundred)
			assert.Equal(t, skew == 0, i.Stats().Lease > 0, "the next but one is leased")
		}
	}
}

// A primary whose clock is 50 ms ahead is in the next window before this instance is. That ends no lease but of those 50 ms.
func TestLeaseByAClockThatIsAhead(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 59, int(980*time.Millisecond), time.UTC))
	ahead := weirtest.NewClock(clock.Now().Add(50 * time.Millisecond))
	f := newFallback(t, limiterOn(t, ahead).FixedWindow(), limiterOn(t, clock).FixedWindow(),
		fallback.Config{Lease: 10, Now: clock.Now, Timeout: time.Minute})
	assert.EqualValues(t, 1, first(ask(t, f, hundred)).TotalRequests, "the rest was given back")
	assert.EqualValues(t, 2, first(ask(t, f, hundred)).TotalRequests)
	for range 3 {
		before := f.Stats().Lease
		clock.Advance(10 * time.Second)
		ahead.Advance(10 * time.Second)
		for range 90 {
			ask(t, f, hundred)
		}
		assert.GreaterOrEqual(t, f.Stats().Lease-before, uint64(75))
		clock.Advance(50 * time.Second)
		ahead.Advance(50 * time.Second)
	}
}

// 64 callers on three instances at once: primary is asked by one caller of each at a time, and exactly the limit passes.
func TestLeaseConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 20_000
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		shared := newServer(func() weir.Strategy { return l.FixedWindow() })
		var admitted, inside, most atomic.Int64
		far := primaryFar{shared, &inside, &most}
		var callers sync.WaitGroup
		for range 3 {
			f := newFallback(t, far, local(t), fallback.Config{Lease: 100, Instances: 3, Timeout: time.Minute})
			for range 64 {
				callers.Go(func() {
					r := weir.Request{Key: "a", Limit: limit, Duration: time.Hour}
					for {
						res, err := f.Run(t.Context(), &r)
						if !assert.NoError(t, err) || !res.Allowed() {
							return
						}
						admitted.Add(1)
					}
				})
			}
		}
		callers.Wait()
		assert.LessOrEqual(t, most.Load(), int64(3))
		assert.LessOrEqual(t, admitted.Load(), int64(limit))
		assert.GreaterOrEqual(t, admitted.Load(), int64(limit-6), "others ended while one held the last of it")
		t.Logf("%d admitted in %d round trips", admitted.Load(), shared.runs.Load())
	})
}

// primaryFar is a primary a millisecond away that counts who is inside.
type primaryFar struct {
	*server
	inside, most *atomic.Int64
}

func (p primaryFar) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	n := p.inside.Add(1)
	defer p.inside.Add(-1)
	for m := p.most.Load(); n > m && !p.most.CompareAndSwap(m, n); m = p.most.Load() {
	}
	time.Sleep(time.Millisecond)
	return p.server.Run(ctx, r)
}

// slowly is a primary at some distance that heeds its context.
type slowly struct {
	*server
	takes time.Duration
}

func (p slowly) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	select {
	case <-time.After(p.takes):
		return p.server.Run(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// However many flights a caller waits for one after the other, he waits no longer than Timeout. Those are no failures.
func TestLeaseWaitsNoLongerThanTimeout(t *testing.T) {
	for name, short := range map[string]time.Duration{"Timeout": time.Hour, "his own deadline": 60 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := weir.New(weir.Config{})
				require.NoError(t, err)
				defer l.Close()
				far := slowly{newServer(func() weir.Strategy { return l.FixedWindow() }), 20 * time.Millisecond}
				f := newFallback(t, far, local(t), fallback.Config{Lease: 10, Instances: 100, Failures: 1})
				var all sync.WaitGroup
				for range 64 {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), short)
						defer cancel()
						start, r := time.Now(), hundred
						_, err := f.Run(ctx, &r)
						assert.NoError(t, err)
						assert.LessOrEqual(t, time.Since(start), min(fallback.DefaultTimeout, short/2))
					})
				}
				all.Wait()
				assert.Zero(t, f.Stats().Failures)
			})
		})
	}
}

// Who has little time asks for a block for all, and is not answered in it. The others ask again.
func TestLeaseAskedForInTooShortATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		far := slowly{newServer(func() weir.Strategy { return l.FixedWindow() }), 20 * time.Millisecond}
		f := newFallback(t, far, local(t), fallback.Config{Lease: 10})
		hasty := make(chan fallback.Source)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			r := hundred
			_, by, _ := f.RunSource(ctx, &r)
			hasty <- by
		}()
		time.Sleep(time.Millisecond)
		assert.Equal(t, fallback.FromPrimary, second(ask(t, f, hundred)))
		assert.Equal(t, fallback.FromLocal, <-hasty)
	})
}

// What was leased is still given out when primary is gone: primary has counted it. Then local decides.
func TestLeaseSurvivesAnOutage(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{Lease: 10, Failures: 1}, whole)
	i := f.instances[0]
	ask(t, i, hundred)
	f.server.fails(errDown)
	for range 9 {
		_, by := ask(t, i, hundred)
		assert.Equal(t, fallback.FromLease, by)
	}
	assert.EqualValues(t, 90, most(t, i, hundred))
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	assert.Zero(t, most(t, i, hundred))
}

// In an outage nobody waits for the one who probes, though he asks for a block for them all.
func TestLeaseProbeHoldsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFallback(t, &weirtest.Fake{Answer: weirtest.Hang}, local(t), fallback.Config{Lease: 10, Failures: 1})
		ask(t, f, hour)
		time.Sleep(2 * fallback.DefaultProbeInterval)
		probe := make(chan time.Duration)
		go func() {
			start := time.Now()
			ask(t, f, hour)
			probe <- time.Since(start)
		}()
		synctest.Wait()
		start := time.Now()
		_, by := ask(t, f, hour)
		assert.Equal(t, fallback.FromLocal, by)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, fallback.DefaultTimeout, <-probe)
	})
}
