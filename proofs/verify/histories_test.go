package verify

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// movingClock is a clock that the callers advance. Its readers often yield between reading it and
// using the reading, which detects limiters that rely on an old reading.
type movingClock struct {
	ms, readings atomic.Int64
}

func (c *movingClock) now() time.Time {
	t := at(c.ms.Load())
	if n := c.readings.Add(1); n%3 == 0 {
		for range n % 8 {
			runtime.Gosched()
		}
	}
	return t
}

// timed is a request with the clock's readings before and after it, between which it was decided.
type timed struct {
	ask
	from, to int64
}

// subject is a strategy under test and its model.
type subject struct {
	name  string
	make  func(l *weir.Limiter, now func() time.Time) weir.Strategy
	model model
}

var spans = []weir.Tier{{Limit: 3, Duration: 4 * time.Millisecond},
	{Limit: 5, Duration: 10 * time.Millisecond}}

// reading returns a subject that has no other clock than its Limiter's.
func reading[S weir.Strategy](name string, make func(*weir.Limiter) S, m model) subject {
	return subject{name, func(l *weir.Limiter, _ func() time.Time) weir.Strategy { return make(l) }, m}
}

func subjects() []subject {
	return []subject{
		reading("FixedWindow", (*weir.Limiter).FixedWindow, fixed{}),
		reading("SlidingWindow", (*weir.Limiter).SlidingWindow, sliding{}),
		reading("SlidingLog", (*weir.Limiter).SlidingLog, rolling{}),
		reading("TokenBucket", func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) }, bucket{}),
		reading("TokenBucket of 2", func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(2) },
			bucket{burst: 2}),
		reading("InFlight", (*weir.Limiter).InFlight, rolling{}),
		reading("Counter", (*weir.Limiter).Counter, anchored{}),
		reading("List", (*weir.Limiter).List, anchored{}),
		reading("LeakyBucket", func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(0) }, leaky{}),
		reading("Tiers", func(l *weir.Limiter) weir.Strategy {
			s := l.Tiers(spans...)
			return s
		}, tiers{of: spans}),
		reading("Limit of FixedWindow", func(l *weir.Limiter) weir.Strategy {
			return byLimit{l.FixedWindow().Limit, one}
		}, fixed{}),
		reading("Limit of SlidingWindow", func(l *weir.Limiter) weir.Strategy {
			return byLimit{l.SlidingWindow().Limit, one}
		}, sliding{}),
		reading("Limit of TokenBucket", func(l *weir.Limiter) weir.Strategy {
			return byLimit{l.TokenBucket(0).Limit, one}
		}, bucket{}),
	}
}

// byLimit makes a limit for each request, of one name: equal limits are one, wherever they are
// made.
type byLimit struct {
	limit func(n uint64, d time.Duration) *weir.Limit
	name  func() string
}

func (s byLimit) of(r *weir.Request) *weir.Limit {
	return s.limit(r.Limit, r.Duration).Named(s.name())
}

func one() string { return "one" }

// Run implements weir.Strategy by Take.
func (s byLimit) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	out, err := s.of(r).Take(ctx, r.Key, r.Cost)
	return &out.Result, err
}

// About implements weir.Counter.
func (s byLimit) About() *weir.About {
	return &weir.About{Name: "by limit", Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpCharge,
		weir.OpReset, weir.OpCatchUp, weir.OpReturn)}
}

// Do implements weir.Counter.
func (s byLimit) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		_ = weir.Do(ctx, s.of(&op.Request), op)
	}
}

// sequential describes a strategy to the checker. The instant of a decision is unknown: any instant
// during the operation that gives its result is accepted.
func sequential(initial model) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Partition: byID(func(input any) string { return input.(timed).id }),
		Init:      func() []any { return []any{initial} },
		Step: func(state, input, output any) (next []any) {
			in := input.(timed)
			if output == full {
				return []any{state} // an error counts nothing
			}
			for now := in.from; now <= in.to; now++ {
				m, ok := gives(state.(model), now, in.ask, output.(answer))
				if ok && (len(next) == 0 || !reflect.DeepEqual(m, next[len(next)-1])) {
					next = append(next, m)
				}
			}
			return next
		},
		Equal: reflect.DeepEqual,
	}
	return nondeterministic.ToModel()
}

// byID returns a function that divides a history into those of the IDs.
func byID(id func(input any) string) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) [][]porcupine.Operation {
		of := map[string][]porcupine.Operation{}
		for _, op := range history {
			of[id(op.Input)] = append(of[id(op.Input)], op)
		}
		return slices.Collect(maps.Values(of))
	}
}

const clients, each = 8, 12 // 96 operations in a history

// mode determines what happens while a history is recorded.
type mode int

const (
	frozen    mode = iota // the clock stands still
	sweeping              // the clock advances, and a sweeper removes whatever it may
	recycling             // also with room for only two buckets, in windows of 1 ms
	modes
)

var historyIDs = []string{"a", strings.Repeat("b", 23), strings.Repeat("c", 100)}

// record makes concurrent requests on a strategy, and returns them with their results and times.
func record(t *testing.T, seed uint64, s subject, m mode) (history []porcupine.Operation) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var clock movingClock
	clock.ms.Store(starts[rnd.IntN(len(starts))])
	moving, scale, cfg := m != frozen, int64(10), weir.Config{Now: clock.now, Timeout: 1}
	if m == recycling {
		scale, cfg.MaxBuckets = 1, 2
	}
	l, err := weir.New(cfg)
	require.NoError(t, err)
	defer l.Close()
	strategy := s.make(l, clock.now)
	base := time.Now()
	var mu sync.Mutex
	var callers, sweeper sync.WaitGroup
	var done atomic.Int64 // operations
	stop := make(chan struct{})
	if moving {
		sweeper.Go(func() {
			for moved := int64(0); ; {
				select {
				case <-stop:
					return
				default:
					l.Sweep()
					if moved < 2*done.Load() { // only while the callers make progress
						moved++
						clock.ms.Add(1)
					}
					runtime.Gosched()
				}
			}
		})
	}
	for client := range clients {
		rnd := rand.New(rand.NewPCG(seed, uint64(client)+1))
		callers.Go(func() {
			var mine []porcupine.Operation
			for range each {
				if moving && rnd.IntN(4) == 0 {
					clock.ms.Add(rnd.Int64N(6))
				}
				a := ask{id: historyIDs[rnd.IntN(3)], scale: scale, limit: 3,
					cost: 1 + rnd.Int64N(8)/6 + rnd.Int64N(10)/9*3}
				from, call := clock.ms.Load(), int64(time.Since(base))
				res, err := strategy.Run(context.Background(), a.request())
				back, to := int64(time.Since(base)), clock.ms.Load()
				done.Add(1)
				answered := full
				switch {
				case err == nil:
					answered = answerOf(res)
				case m != recycling || err != weir.ErrFull:
					t.Error(err)
					return
				}
				mine = append(mine, porcupine.Operation{
					ClientId: client, Input: timed{a, from, to}, Call: call, Output: answered, Return: back,
				})
			}
			mu.Lock()
			history = append(history, mine...)
			mu.Unlock()
		})
	}
	callers.Wait()
	close(stop)
	sweeper.Wait()
	return history
}

// tally counts the checker's verdicts.
type tally struct{ legal, illegal, unknown atomic.Int64 }

// check records n histories, a third of them in each mode, and checks them.
func check(t *testing.T, s subject, n int) (sum tally, worst string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	described := sequential(s.model)
	for range 2 {
		wg.Go(func() {
			for seed := next.Add(1); seed <= int64(n); seed = next.Add(1) {
				history := record(t, uint64(seed), s, mode(seed)%modes)
				switch porcupine.CheckOperationsTimeout(described, history, 2*time.Minute) {
				case porcupine.Ok:
					sum.legal.Add(1)
				case porcupine.Unknown:
					sum.unknown.Add(1)
				case porcupine.Illegal:
					sum.illegal.Add(1)
					mu.Lock()
					worst = fmt.Sprint("seed ", seed)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return
}

// Every concurrent history is equivalent to a sequential one: no hit is lost or counted twice, and
// each decision uses an instant within its call.
func TestLinearizable(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			n := slow.N(20, 700, 10_000)
			if s.name == "FixedWindow" {
				n = slow.N(40, 1500, 10_000)
			}
			start := time.Now()
			sum, worst := check(t, s, n)
			t.Logf("%d histories of %d operations in %v: %d illegal, %d unknown", n, clients*each,
				time.Since(start).Round(time.Second), sum.illegal.Load(), sum.unknown.Load())
			assert.EqualValues(t, n, sum.legal.Load(), worst)
			assert.Zero(t, sum.illegal.Load(), worst)
			assert.Zero(t, sum.unknown.Load())
		})
	}
}

// meeting lets two callers of one key wait for each other. Waiting blocks instead of spinning, so
// that the other caller can run.
type meeting struct {
	mu      sync.Mutex
	waiting map[string]chan struct{} // guarded by mu
}

// wait returns when a second caller of the key has arrived, or after a timeout.
func (m *meeting) wait(key string) {
	m.mu.Lock()
	if other := m.waiting[key]; other != nil {
		delete(m.waiting, key)
		m.mu.Unlock()
		close(other)
		return
	}
	if m.waiting == nil {
		m.waiting = map[string]chan struct{}{}
	}
	here := make(chan struct{})
	m.waiting[key] = here
	m.mu.Unlock()
	select {
	case <-here:
		return
	case <-time.After(10 * time.Millisecond):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[key] == here {
		delete(m.waiting, key)
	}
}

// peekThenCharge decides by Peek and counts by Charge. Each is correct, but together they are not
// atomic.
type peekThenCharge struct {
	weir.Strategy
	*meeting
}

func (s peekThenCharge) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := ops.Peek(ctx, s.Strategy, r)
	if err == nil && res.Allowed() {
		s.wait(r.Key)
		err = ops.Charge(ctx, s.Strategy, r)
	}
	return res, err
}

// readThenIncrement is a fixed window that reads, decides and then writes.
type readThenIncrement struct {
	now    func() time.Time
	mu     sync.Mutex
	counts map[string]fixed
	meeting
}

func (s *readThenIncrement) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	a := ask{r.Key, r.Duration.Milliseconds(), int64(r.Limit), int64(r.Cost)}
	s.mu.Lock()
	before := s.counts[r.Key]
	s.mu.Unlock()
	now := s.now().UnixMilli()
	next, res, ok := before.ask(now, a)
	if !ok {
		next, res, _ = fixed{}.ask(now, a)
	}
	if res.allowed {
		s.wait(r.Key)
	}
	s.mu.Lock()
	s.counts[r.Key] = next.(fixed)
	s.mu.Unlock()
	result := &weir.Result{TotalRequests: uint64(res.total)}
	if res.allowed {
		result.State = weir.Allow
	}
	if res.expires != never {
		result.ExpiresAt = time.Unix(0, res.expires)
	}
	return result, nil
}

// The controls: broken strategies are rejected.
func TestLinearizableControlsAreRejected(t *testing.T) {
	n := slow.N(10, 100, 200)
	rejected := func(t *testing.T, s subject) {
		sum, _ := check(t, s, n)
		t.Logf("%d of %d histories rejected", sum.illegal.Load(), n)
		assert.GreaterOrEqual(t, sum.illegal.Load(), int64(n*95/100))
	}
	t.Run("read then increment", func(t *testing.T) {
		rejected(t, subject{model: fixed{}, make: func(_ *weir.Limiter,
			now func() time.Time) weir.Strategy {
			return &readThenIncrement{now: now, counts: map[string]fixed{}}
		}})
	})
	t.Run("limits that count apart", func(t *testing.T) {
		var made atomic.Int64
		rejected(t, reading("", func(l *weir.Limiter) weir.Strategy {
			return byLimit{l.FixedWindow().Limit, func() string { return fmt.Sprint(made.Add(1) % 2) }}
		}, fixed{}))
	})
	for _, s := range subjects() {
		t.Run("peek then charge "+s.name, func(t *testing.T) {
			made := s.make
			s.make = func(l *weir.Limiter, now func() time.Time) weir.Strategy {
				return peekThenCharge{made(l, now), new(meeting)}
			}
			rejected(t, s)
		})
	}
}
