package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
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
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// primaryFunc is a primary that is a function.
type primaryFunc func(ctx context.Context) (*weir.Result, error)

func (f primaryFunc) Run(ctx context.Context, _ *weir.Request) (*weir.Result, error) {
	return f(ctx)
}

func admitted() (*weir.Result, error) {
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// behaviors are the ways in which a primary may answer or fail.
var behaviors = []func(ctx context.Context, rng *rand.Rand, end <-chan struct{}) (*weir.Result,
	error){
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return admitted() },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return nil, errDown },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) {
		return nil, weir.ErrLimit
	},
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { return nil, nil },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) { panic("a bug") },
	func(context.Context, *rand.Rand, <-chan struct{}) (*weir.Result, error) {
		runtime.Goexit()
		return nil, nil
	},
	// hangs until its context is done
	func(ctx context.Context, _ *rand.Rand, _ <-chan struct{}) (*weir.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	// slow, and ignores its context
	func(_ context.Context, rng *rand.Rand, _ <-chan struct{}) (*weir.Result, error) {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // in a bubble
		return admitted()
	},
	// hangs until the end, and ignores its context
	func(_ context.Context, _ *rand.Rand, end <-chan struct{}) (*weir.Result, error) {
		<-end
		return nil, errDown
	},
}

// runProbes calls a Fallback while primary behaves at random and some callers cancel. Then primary
// recovers, and the breaker must close within three intervals even though callers still cancel. It
// returns an error that describes any violation.
func runProbes(t *testing.T, seed uint64) (violation error) {
	rng := rand.New(rand.NewPCG(seed, 37))
	end := make(chan struct{})
	var healthy atomic.Bool
	var mu sync.Mutex // guards rng
	draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
		if healthy.Load() {
			time.Sleep(2 * time.Millisecond)
			return admitted()
		}
		own := rand.New(rand.NewPCG(seed, uint64(draw(1<<30))))
		return behaviors[draw(len(behaviors))](ctx, own, end)
	}), weirtest.DenyAll(), fallback.Config{MinCalls: 1 + rng.IntN(3), Stall: -1})
	var callers sync.WaitGroup
	errs := make(chan error, 1000)
	call := func() {
		wait := time.Duration(1+draw(100)) * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(wait, cancel).Stop()
		r := hour
		start := time.Now()
		if _, err := f.Run(ctx, &r); err != nil && !errors.Is(err, weir.ErrLimit) &&
			!errors.Is(err, context.Canceled) {
			errs <- err
		}
		if took := time.Since(start); took > fallback.DefaultTimeout {
			errs <- fmt.Errorf("the call took %v", took)
		}
	}
	for range 15 {
		for range 1 + draw(3) {
			callers.Go(call)
		}
		time.Sleep(time.Duration(draw(400)) * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // stuck probes time out
	healthy.Store(true)
	for start := time.Now(); f.Stats().State != fallback.Closed; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 3*fallback.DefaultProbeInterval {
			violation = fmt.Errorf("%v after three intervals without failures", f.Stats().State)
			break
		}
		callers.Go(call)
	}
	close(end)
	callers.Wait()
	select {
	case err := <-errs:
		violation = errors.Join(violation, fmt.Errorf("a caller saw: %w", err))
	default:
	}
	return violation
}

// Stuck, slow or panicking probes and callers that cancel never keep the breaker open. Callers see
// no error of primary or the breaker, and none waits longer than Timeout. The bubble fails if a
// goroutine remains.
func TestProbesNeverKeepTheBreakerOpen(t *testing.T) {
	t.Parallel()
	for seed := range uint64(slow.N(40, 300, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			if err := runProbes(t, seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// When 64 callers find that a probe is due, one probe starts, none of them waits for it, and
// primary decides afterwards.
func TestOneProbeFor64Callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var called atomic.Int64
		var healthy atomic.Bool
		f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
			called.Add(1)
			if healthy.Load() {
				time.Sleep(10 * time.Millisecond)
				return admitted()
			}
			return nil, errDown
		}), local(t), tripAtOnce)
		ask(t, f, hour)
		healthy.Store(true)
		time.Sleep(1100 * time.Millisecond)
		called.Store(0)
		start := time.Now()
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() { assert.Equal(t, weir.FromLocal, source(t, f, hour)) })
		}
		callers.Wait()
		assert.Zero(t, time.Since(start))
		time.Sleep(20 * time.Millisecond)
		assert.EqualValues(t, 1, called.Load())
		assert.Equal(t, fallback.Closed, f.Stats().State)
		assert.Equal(t, weir.FromPrimary, source(t, f, hour))
	})
}

// While primary hangs, an open breaker runs one probe at a time, at most one in each interval.
func TestOpenBreakerCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var called []time.Time
		var inside, most atomic.Int64
		f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
			mu.Lock()
			called = append(called, time.Now())
			mu.Unlock()
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}), local(t), tripAtOnce)
		ask(t, f, hour)
		start := time.Now()
		for range 10_000 {
			if by := source(t, f, hour); by != weir.FromLocal {
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
		t.Logf("%d calls of primary, %d probes in %v", len(called), stats.Probes, time.Since(start))
	})
}

// nowTakes measures time.Now, which takes a microsecond on machines without a fast clock.
func nowTakes() time.Duration {
	const n = 100_000
	start := time.Now()
	for range n {
		_ = time.Now()
	}
	return time.Since(start) / n
}

// An open breaker adds little latency. The test uses the median, as the slowest decisions measure
// the machine.
func TestOpenBreakerIsFast(t *testing.T) {
	slow.Native(t)
	cfg := tripAtOnce
	cfg.ProbeInterval = time.Hour
	f := newFallback(t, weirtest.FailAll(errDown), local(t), cfg)
	ask(t, f, hour)
	limit := 5 * time.Microsecond
	if slow.Race {
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

// readOnly returns a primary, such as a read-only replica, that can deny but not admit.
func readOnly(s *server) weir.Strategy {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if op.Verb != weir.OpTake || op.Backlog != nil {
			next(ctx, op)
			return
		}
		op.Verb = weir.OpPeek
		next(ctx, op)
		op.Verb = weir.OpTake
		if op.Err == nil && op.Result.Allowed() {
			op.Err = errDown
		}
	})
}

// A read-only primary still denies. A denied probe does not close the breaker.
func TestDeniedProbesDoNotCloseTheBreaker(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, readOnly)
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

// Every call of primary starts a probe that is due, except Peek.
func TestEveryCallStartsAProbe(t *testing.T) {
	for name, call := range map[string]func(*fallback.Fallback, *weir.Request) error{
		"Run": func(f *fallback.Fallback, r *weir.Request) error {
			_, err := f.Run(t.Context(), r)
			return err
		},
		"Charge": func(f *fallback.Fallback, r *weir.Request) error { return ops.Charge(t.Context(), f, r) },
		"Reset":  func(f *fallback.Fallback, r *weir.Request) error { return ops.Reset(t.Context(), f, r) },
		"Refund": func(f *fallback.Fallback, r *weir.Request) error {
			r.Cost = 2 // local has admitted 1 of them
			return ops.Refund(t.Context(), f, r, &weir.Result{State: weir.Allow, ExpiresAt: time.Now().AddDate(9, 0, 0)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
			i, r := f.instances[0], hundred
			f.server.fails(errDown)
			assert.Equal(t, weir.FromLocal, source(t, i, r))
			f.server.fails(nil)
			f.clock.Advance(2 * time.Second)
			_, err := ops.Peek(t.Context(), i, &r)
			require.NoError(t, err)
			assert.Equal(t, fallback.Open, i.Stats().State)
			require.NoError(t, call(i, &r))
			require.Eventually(t, func() bool {
				return i.Stats().State == fallback.Closed
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// A probe reaches the server, even through leases and cached denials.
func TestProbesReachTheServer(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, func(s *server) weir.Strategy {
		return near.NewLeases(near.NewDenials(s, near.DenialsConfig{}), near.LeaseConfig{Block: 10})
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

// distant is a primary whose calls take some time, and whose Warm takes longer than Timeout.
type distant struct {
	warm, run time.Duration
	up        *atomic.Bool
	warmed    *atomic.Int64
}

func (s distant) About() *weir.About {
	return &weir.About{Of: s, Verbs: weir.VerbsOf(weir.OpTake, weir.OpWarm)}
}

func (s distant) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s distant) Do(ctx context.Context, ops []*weir.Op) {
	op, takes := ops[0], s.run
	switch {
	case !s.up.Load():
		op.Err = errDown
		return
	case op.Verb == weir.OpWarm:
		s.warmed.Add(1)
		takes = s.warm
	case op.Verb != weir.OpTake:
		op.Err = op.Unsupported(s.About())
		return
	}
	op.Err = nil
	select {
	case <-time.After(takes):
		if op.Verb == weir.OpTake {
			res, _ := admitted()
			op.Result = *res
		}
	case <-ctx.Done():
		op.Err = ctx.Err()
	}
}

// Connecting may take longer than Timeout. The breaker closes if a decision on the warm connection
// takes less.
func TestProbeMayConnectSlowly(t *testing.T) {
	for _, row := range []struct {
		run   time.Duration
		state fallback.State
	}{{45 * time.Millisecond, fallback.Closed}, {60 * time.Millisecond, fallback.Open}} {
		synctest.Test(t, func(t *testing.T) {
			p := distant{200 * time.Millisecond, row.run, new(atomic.Bool), new(atomic.Int64)}
			f := newFallback(t, p, local(t), tripAtOnce)
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

// Each partition has its own breaker. A failed partition does not affect the others, and its probe
// uses one of its keys.
func TestPartitions(t *testing.T) {
	hash := func(key string) string {
		h := crc32.ChecksumIEEE([]byte(key)) % 3
		return "abc"[h : h+1]
	}
	for name, partition := range map[string]func(key string) string{
		"prefix": func(key string) string {
			before, _, _ := strings.Cut(key, ":")
			return before
		},
		"hash":               hash,
		"hash under a limit": hash,
	} {
		t.Run(name, func(t *testing.T) {
			key, counted := map[string]string{"a": "a:x", "b": "b:x"}, func(key string) string { return key }
			primary := func(s weir.Strategy) weir.Strategy { return s }
			if name == "hash under a limit" {
				counted = func(key string) string { return weir.JoinKey("inner", key) }
				primary = func(s weir.Strategy) weir.Strategy {
					s = named("inner", near.NewDenials(s, near.DenialsConfig{}), 100, time.Hour)
					return near.NewDenials(s, near.DenialsConfig{})
				}
			}
			if name != "prefix" {
				for i := range 100 {
					k := fmt.Sprint("key ", i)
					if name == "hash" || partition(k) == "c" { // by this key they would share a breaker
						key[partition(counted(k))] = k
					}
				}
			}
			cfg := tripAtOnce
			cfg.Partition = partition
			var down atomic.Value
			down.Store("a")
			f := newFleet(t, 1, fixedWindow, cfg, func(s *server) weir.Strategy {
				s.passes = func(c call) (*weir.Result, error) {
					if partition(c.op.Key) == down.Load() {
						return nil, errDown
					}
					return c.do()
				}
				return primary(s)
			})
			i := f.instances[0]
			a := weir.Request{Key: key["a"], Limit: 100, Duration: time.Hour}
			b := weir.Request{Key: key["b"], Limit: 100, Duration: time.Hour}
			for range 50 {
				assert.Equal(t, weir.FromLocal, source(t, i, a))
				assert.Equal(t, weir.FromPrimary, source(t, i, b))
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
			require.Eventually(t, func() bool {
				return source(t, i, a) == weir.FromPrimary
			}, 10*time.Second, time.Millisecond)
			assert.Zero(t, i.Stats().OpenPartitions)
		})
	}
}
