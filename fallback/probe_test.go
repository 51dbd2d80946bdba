package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
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
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

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
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) {
		runtime.Goexit()
		return nil, nil
	},
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

// ordeal has callers come while primary is in random moods, some of whom give up; then primary is
// well, and though callers still give up the breaker must close within two intervals. It returns
// what went wrong.
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
	}), weirtest.DenyAll(), fallback.Config{MinCalls: 1 + rng.IntN(3), Stall: -1})
	var callers sync.WaitGroup
	errs := make(chan error, 1000)
	call := func() {
		wait := time.Duration(1+draw(100)) * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(wait, cancel).Stop()
		r := hour
		start := time.Now()
		if _, err := f.Run(ctx, &r); err != nil && !errors.Is(err, weir.ErrLimit) && !errors.Is(err, context.Canceled) {
			errs <- err
		}
		if took := time.Since(start); took > fallback.DefaultTimeout {
			errs <- fmt.Errorf("it took %v", took)
		}
	}
	for range 15 {
		for range 1 + draw(3) {
			callers.Go(call)
		}
		time.Sleep(time.Duration(draw(400)) * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // probes that hang end
	well.Store(true)
	for start := time.Now(); f.Stats().State != fallback.Closed; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 3*fallback.DefaultProbeInterval {
			wrong = fmt.Errorf("%v after three intervals of health", f.Stats().State)
			break
		}
		callers.Go(call)
	}
	close(end)
	callers.Wait()
	select {
	case err := <-errs:
		wrong = errors.Join(wrong, fmt.Errorf("a caller saw: %w", err))
	default:
	}
	return wrong
}

// Probes that are lost, slow or panic, and callers who give up, never keep the breaker from
// closing; callers see no error of primary's or of the breaker's, and none waits for longer than
// Timeout. A goroutine that is left fails the bubble.
func TestProbesNeverWedge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(slow.N(40, 300, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			if err := ordeal(t, seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// 64 callers come to a breaker whose interval is over: one probe starts, nobody waits for it, and
// then primary decides.
func TestOneProbeFor64Callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var well atomic.Bool
		f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
			asked.Add(1)
			if well.Load() {
				time.Sleep(10 * time.Millisecond)
				return admitted()
			}
			return nil, errDown
		}), local(t), atOnce)
		ask(t, f, hour)
		well.Store(true)
		time.Sleep(1100 * time.Millisecond)
		asked.Store(0)
		start := time.Now()
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() { assert.Equal(t, fallback.FromLocal, source(t, f, hour)) })
		}
		callers.Wait()
		assert.Zero(t, time.Since(start))
		time.Sleep(20 * time.Millisecond)
		assert.EqualValues(t, 1, asked.Load())
		assert.Equal(t, fallback.Closed, f.Stats().State)
		assert.Equal(t, fallback.FromPrimary, source(t, f, hour))
	})
}

// While primary hangs, an open breaker has one probe at a time, one in an interval.
func TestOpenBreakerCostsNothing(t *testing.T) {
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
		}), local(t), atOnce)
		ask(t, f, hour)
		start := time.Now()
		for range 10_000 {
			if by := source(t, f, hour); by != fallback.FromLocal {
				t.Fatal(by)
			}
			time.Sleep(10 * time.Millisecond)
		}
		stats := f.Stats()
		assert.LessOrEqual(t, most.Load(), int64(2), "one probe starts as the one before ends")
		assert.LessOrEqual(t, stats.Probes, uint64(time.Since(start)/fallback.DefaultProbeInterval))
		assert.GreaterOrEqual(t, stats.Probes, uint64(85))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d calls of primary, %d probes in %v", len(asked), stats.Probes, time.Since(start))
	})
}

// nowTakes is what a time.Now takes. On a machine without a fast clock it is a microsecond.
func nowTakes() time.Duration {
	const n = 100_000
	start := time.Now()
	for range n {
		_ = time.Now()
	}
	return time.Since(start) / n
}

// An open breaker delays nobody: the median, since the slowest decisions measure the machine.
func TestOpenBreakerIsFast(t *testing.T) {
	cfg := atOnce
	cfg.ProbeInterval = time.Hour
	f := newFallback(t, weirtest.FailAll(errDown), local(t), cfg)
	ask(t, f, hour)
	limit := 5 * time.Microsecond
	if raceEnabled {
		limit *= 6
	}
	limit += 5 * nowTakes() // a decision reads its clock several times
	took := make([]time.Duration, 20_000)
	for i := range took {
		start := time.Now()
		ask(t, f, hour)
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	t.Logf("p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
	assert.LessOrEqual(t, took[len(took)/2], limit)
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

// A primary that can only read answers those it denies. A probe does not take that for health.
func TestDenialsProveNothing(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, atOnce, func(s *server) weir.Strategy { return readOnly{s} })
	i := f.instances[0]
	ask(t, i, hour)
	for range 20 {
		f.clock.Advance(2 * time.Second)
		probeFails(t, i)
	}
	stats := i.Stats()
	assert.EqualValues(t, 1, stats.Opens)
	assert.EqualValues(t, 20, stats.Probes)
}

// A probe that is due is started by whatever primary is wanted for, but not by a Peek.
func TestEveryCallStartsAProbe(t *testing.T) {
	for name, call := range map[string]func(*fallback.Fallback, *weir.Request) error{
		"Run":    func(f *fallback.Fallback, r *weir.Request) error { _, err := f.Run(t.Context(), r); return err },
		"Charge": func(f *fallback.Fallback, r *weir.Request) error { return f.Charge(t.Context(), r) },
		"Reset":  func(f *fallback.Fallback, r *weir.Request) error { return f.Reset(t.Context(), r) },
		"Refund": func(f *fallback.Fallback, r *weir.Request) error {
			r.Cost = 2 // of which local has admitted 1
			return f.Refund(t.Context(), r, &weir.Result{State: weir.Allow, ExpiresAt: time.Now().AddDate(9, 0, 0)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, atOnce, whole)
			i, r := f.instances[0], hundred
			f.server.fails(errDown)
			assert.Equal(t, fallback.FromLocal, source(t, i, r))
			f.server.fails(nil)
			f.clock.Advance(2 * time.Second)
			_, err := i.Peek(t.Context(), &r)
			require.NoError(t, err)
			assert.Equal(t, fallback.Open, i.Stats().State)
			require.NoError(t, call(i, &r))
			require.Eventually(t, func() bool { return i.Stats().State == fallback.Closed }, 10*time.Second, time.Millisecond)
		})
	}
}

// Nor do leases and cached denials: a probe reaches the server behind them.
func TestProbesReachTheServer(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, atOnce, func(s *server) weir.Strategy {
		return near.Lease(near.Denials(s, near.DenialsConfig{}), near.LeaseConfig{Block: 10})
	})
	i := f.instances[0]
	ask(t, i, hundred)
	f.server.fails(errDown)
	ask(t, i, weir.Request{Key: "b", Limit: 10, Duration: time.Minute})
	require.Equal(t, fallback.Open, i.Stats().State)
	f.clock.Advance(2 * time.Second)
	probeFails(t, i)
	f.heal(t)
}

// distant takes a while for everything, and longer than Timeout to warm up.
type distant struct {
	warm, run time.Duration
	up        *atomic.Bool
	warmed    *atomic.Int64
}

func (s distant) Warm(ctx context.Context, _ *weir.Request) error {
	if !s.up.Load() {
		return errDown
	}
	s.warmed.Add(1)
	select {
	case <-time.After(s.warm):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s distant) Run(ctx context.Context, _ *weir.Request) (*weir.Result, error) {
	if !s.up.Load() {
		return nil, errDown
	}
	select {
	case <-time.After(s.run):
		return admitted()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// To connect may take far longer than Timeout. What counts is a decision within Timeout, on the
// warm connection.
func TestProbeMayConnectSlowly(t *testing.T) {
	for _, row := range []struct {
		run   time.Duration
		state fallback.State
	}{{45 * time.Millisecond, fallback.Closed}, {60 * time.Millisecond, fallback.Open}} {
		synctest.Test(t, func(t *testing.T) {
			p := distant{200 * time.Millisecond, row.run, new(atomic.Bool), new(atomic.Int64)}
			f := newFallback(t, p, local(t), atOnce)
			ask(t, f, hour)
			p.up.Store(true)
			time.Sleep(1200 * time.Millisecond)
			ask(t, f, hour)
			time.Sleep(1090 * time.Millisecond)
			assert.Equal(t, row.state, f.Stats().State)
			assert.Positive(t, p.warmed.Load())
		})
	}
}

// Each part of primary has its breaker: those of other parts do not suffer, and a probe asks the
// part that is down.
func TestPartitions(t *testing.T) {
	for name, partition := range map[string]func(key string) string{
		"prefix": func(key string) string { before, _, _ := strings.Cut(key, ":"); return before },
		"hash": func(key string) string {
			h := 0
			for _, c := range []byte(key) {
				h = h*31 + int(c)
			}
			return fmt.Sprint("abc"[uint(h)%3 : uint(h)%3+1])
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := map[string]string{"a": "a:x", "b": "b:x"}
			if name == "hash" {
				for i := range 100 {
					k := fmt.Sprint("key ", i)
					key[partition(k)] = k
				}
			}
			cfg := atOnce
			cfg.Partition = partition
			var down atomic.Value
			down.Store("a")
			f := newFleet(t, 1, fixedWindow, cfg, func(s *server) weir.Strategy { return &sharded{s, partition, &down} })
			i := f.instances[0]
			a := weir.Request{Key: key["a"], Limit: 100, Duration: time.Hour}
			b := weir.Request{Key: key["b"], Limit: 100, Duration: time.Hour}
			for range 50 {
				assert.Equal(t, fallback.FromLocal, source(t, i, a))
				assert.Equal(t, fallback.FromPrimary, source(t, i, b))
			}
			stats := i.Stats()
			assert.Equal(t, 1, stats.OpenPartitions)
			assert.Equal(t, fallback.Open, stats.State)
			f.clock.Advance(2 * time.Second)
			before := stats.Probes
			require.Eventually(t, func() bool {
				a := a
				a.Limit = 0
				ask(t, i, a)
				return i.Stats().Probes > before && i.Stats().State == fallback.Open
			}, 10*time.Second, time.Millisecond)
			down.Store("")
			f.clock.Advance(2 * time.Second)
			require.Eventually(t, func() bool { return source(t, i, a) == fallback.FromPrimary }, 10*time.Second, time.Millisecond)
			assert.Zero(t, i.Stats().OpenPartitions)
		})
	}
}

// sharded fails for the keys of one part.
type sharded struct {
	*server
	partition func(key string) string
	down      *atomic.Value
}

func (s *sharded) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if s.partition(r.Key) == s.down.Load() {
		return nil, errDown
	}
	return s.server.Run(ctx, r)
}
