package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

var hour = weir.Request{Key: "a", Limit: 1 << 40, Duration: time.Hour}

// local is a limiter on the real clock, which in a bubble is virtual.
func local(t testing.TB) weir.Strategy {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.FixedWindow()
}

// primaryFunc is a primary of one function.
type primaryFunc func(ctx context.Context) (*weir.Result, error)

func (f primaryFunc) Run(ctx context.Context, _ *weir.Request) (*weir.Result, error) { return f(ctx) }

func admitted() (*weir.Result, error) {
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// moods are what a primary may do, good and bad.
var moods = []func(ctx context.Context, rng *rand.Rand, end <-chan struct{}) (*weir.Result, error){
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return admitted() },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return nil, errDown },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return nil, weir.ErrLimit },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return nil, nil },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { panic("a bug") },
	func(ctx context.Context, _ *rand.Rand, _ <-chan struct{}) (*weir.Result, error) { // hangs, and heeds its context
		<-ctx.Done()
		return nil, ctx.Err()
	},
	func(_ context.Context, rng *rand.Rand, _ <-chan struct{}) (*weir.Result, error) { // slow, and does not
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		return admitted()
	},
	func(_ context.Context, _ *rand.Rand, end <-chan struct{}) (*weir.Result, error) { // lost
		<-end
		return nil, errDown
	},
}

// ordeal has callers come while primary is in random moods, some of whom give up; then primary is well, and though
// callers still give up the breaker must close within two intervals. It returns what went wrong.
func ordeal(t *testing.T, seed uint64) (wrong error) {
	rng := rand.New(rand.NewPCG(seed, 37))
	end := make(chan struct{})
	var well atomic.Bool
	var mu sync.Mutex // of rng
	draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
		if well.Load() {
			time.Sleep(2 * time.Millisecond)
			return admitted()
		}
		own := rand.New(rand.NewPCG(seed, uint64(draw(1<<30))))
		return moods[draw(len(moods))](ctx, own, end)
	}), weirtest.DenyAll(), fallback.Config{Failures: 1 + rng.IntN(3)})
	var callers sync.WaitGroup
	errs := make(chan error, 1000)
	call := func() {
		patience := time.Duration(1+draw(100)) * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(patience, cancel).Stop()
		r := hour
		if _, err := f.Run(ctx, &r); err != nil && !errors.Is(err, weir.ErrLimit) && !errors.Is(err, context.Canceled) {
			errs <- err
		}
	}
	for range 15 {
		for range 1 + draw(3) {
			callers.Go(call)
		}
		time.Sleep(time.Duration(draw(400)) * time.Millisecond)
	}
	well.Store(true)
	for start := time.Now(); f.Stats().State != fallback.Closed; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 2*fallback.DefaultProbeInterval {
			wrong = fmt.Errorf("%v after two intervals of health", f.Stats().State)
			break
		}
		callers.Go(call)
	}
	close(end)
	callers.Wait()
	select {
	case err := <-errs:
		wrong = errors.Join(wrong, fmt.Errorf("a caller was told: %w", err))
	default:
	}
	return wrong
}

// Probes that are lost, slow, panicking or given up never keep the breaker from closing, and callers see no error of
// primary's or of the breaker's.
func TestProbesNeverWedge(t *testing.T) {
	for seed := range uint64(slow.N(200, 2000, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			if err := ordeal(t, seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// 64 callers come to a breaker whose interval is over: one of them asks primary.
func TestOneCallerProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var well atomic.Bool
		f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
			asked.Add(1)
			if well.Load() {
				time.Sleep(time.Millisecond)
				return admitted()
			}
			return nil, errDown
		}), local(t), fallback.Config{Failures: 1})
		ask(t, f, hour)
		well.Store(true)
		time.Sleep(1100 * time.Millisecond)
		asked.Store(0)
		var sources sync.Map
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				r := hour
				_, by, err := f.RunSource(t.Context(), &r)
				assert.NoError(t, err)
				sources.Store(i, by)
			})
		}
		callers.Wait()
		count := map[fallback.Source]int{}
		sources.Range(func(_, by any) bool { count[by.(fallback.Source)]++; return true })
		assert.Equal(t, map[fallback.Source]int{fallback.FromPrimary: 1, fallback.FromLocal: 63}, count)
		assert.EqualValues(t, 1, asked.Load())
		assert.Equal(t, fallback.Closed, f.Stats().State)
	})
}

// An open breaker lets one call to primary pass in an interval, and the others cost next to nothing.
func TestOpenBreakerCallsPrimaryOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []time.Time
		var inside, most atomic.Int64
		f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
			mu.Lock()
			asked = append(asked, time.Now())
			mu.Unlock()
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}), local(t), fallback.Config{Failures: 1})
		ask(t, f, hour)
		start := time.Now()
		for range 100_000 {
			if by := second(ask(t, f, hour)); by != fallback.FromLocal {
				t.Fatal(by)
			}
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range asked[1:] {
			apart := asked[i+1].Sub(asked[i])
			assert.GreaterOrEqual(t, apart, fallback.DefaultProbeInterval)
			assert.Less(t, apart, fallback.DefaultProbeInterval*11/10+2*fallback.DefaultTimeout)
		}
		assert.EqualValues(t, 1, most.Load())
		t.Logf("%d calls of primary in %v", len(asked), time.Since(start))
	})
}

func second[A, B any](_ A, b B) B { return b }

// nowTakes is what a time.Now takes. On a machine without a fast clock it is a microsecond.
func nowTakes() time.Duration {
	const n = 100_000
	start := time.Now()
	for range n {
		_ = time.Now()
	}
	return time.Since(start) / n
}

// The best of a few tries: on a busy machine the others measure the machine. Nor is the price
// of its clock the breaker's: each decision reads it four times.
func TestOpenBreakerIsFast(t *testing.T) {
	f := newFallback(t, weirtest.FailAll(errDown), local(t), fallback.Config{Failures: 1, ProbeInterval: time.Hour})
	ask(t, f, hour)
	limit := 5 * time.Microsecond
	if raceEnabled {
		limit *= 20
	}
	limit += 4 * nowTakes()
	best := time.Hour
	for try := 0; try < 5 && best > limit; try++ {
		took := make([]time.Duration, 100_000)
		for i := range took {
			start := time.Now()
			ask(t, f, hour)
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		t.Logf("p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
		best = min(best, took[len(took)*99/100])
	}
	assert.LessOrEqual(t, best, limit)
}

// readOnly is a primary that can only read: it denies, and cannot admit.
type readOnly struct{ *server }

func (p readOnly) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := p.server.Peek(ctx, r)
	if err == nil && res.Allowed() {
		return nil, errDown
	}
	return res, err
}

// A primary that can only read answers those it denies. The breaker does not take that for health.
func TestDeniedProbesDoNotCloseBreaker(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	s := newServer(func() weir.Strategy { return limiterOn(t, clock).FixedWindow() })
	f := newFallback(t, readOnly{s}, limiterOn(t, clock).FixedWindow(),
		fallback.Config{Failures: 1, Now: clock.Now, Timeout: time.Minute})
	denied := weir.Request{Key: "b", Limit: 0, Duration: time.Hour}
	ask(t, f, hour)
	for range 1000 {
		clock.Advance(100 * time.Millisecond)
		_, by := ask(t, f, denied)
		require.Equal(t, fallback.FromLocal, by)
	}
	stats := f.Stats()
	assert.EqualValues(t, 1, stats.Opens)
	assert.Equal(t, fallback.Open, stats.State)
	assert.Greater(t, stats.Probes, uint64(50))
}

// Nor does it take a fleet of callers that are all denied for an outage.
func TestDeniedCallersCloseBreakerByWriteProbe(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	s := newServer(func() weir.Strategy { return limiterOn(t, clock).FixedWindow() })
	f := newFallback(t, s, limiterOn(t, clock).FixedWindow(),
		fallback.Config{Failures: 1, Now: clock.Now, Timeout: time.Minute})
	s.fails(errDown)
	ask(t, f, hour)
	s.fails(nil)
	clock.Advance(2 * time.Second)
	res, by := ask(t, f, weir.Request{Key: "b", Limit: 0, Duration: time.Hour})
	assert.False(t, res.Allowed())
	assert.Equal(t, fallback.FromPrimary, by)
	assert.Equal(t, fallback.Closed, f.Stats().State)
}
