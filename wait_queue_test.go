package weir

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir/internal/core/turns"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// watchedRuns notes the calls of Run. It is compared by value, and no Peeker.
type watchedRuns struct {
	Strategy
	*runs
}

type runs struct {
	mu       sync.Mutex
	n        int            // guarded by mu, as are all
	admitted []string       // the Meta of each admitted request
	inside   map[string]int // calls of each key that are under way
	most     int            // of those, ever
}

func watchRuns(s Strategy) watchedRuns {
	return watchedRuns{s, &runs{inside: make(map[string]int)}}
}

func (w watchedRuns) Run(ctx context.Context, r *Request) (*Result, error) {
	w.mu.Lock()
	w.n++
	w.inside[r.Key]++
	w.most = max(w.most, w.inside[r.Key])
	w.mu.Unlock()
	runtime.Gosched()
	res, err := w.Strategy.Run(ctx, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside[r.Key]--
	if err == nil && res.Allowed() {
		w.admitted = append(w.admitted, r.Meta)
	}
	return res, err
}

func (w watchedRuns) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// numbers returns "0" to n-1.
func numbers(n int) (list []string) {
	for i := range n {
		list = append(list, strconv.Itoa(i))
	}
	return list
}

// waitFunc is Wait, or a control.
type waitFunc func(context.Context, Strategy, *Request) (time.Duration, error)

// crowd is a control that keeps no queue: all ask again at the same instant.
func crowd(ctx context.Context, s Strategy, r *Request) (time.Duration, error) {
	for {
		res, err := s.Run(ctx, r)
		if err != nil || res.Allowed() {
			return 0, err
		}
		if sleep(ctx, time.Until(res.ExpiresAt), nil); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// inTurn has 100 callers arrive one after another, of whom one is admitted in each second.
func inTurn(t *testing.T, wait waitFunc, s watchedRuns, asked Strategy) {
	var all errgroup.Group
	for _, meta := range numbers(100) {
		all.Go(func() error {
			_, err := wait(t.Context(), asked,
				&Request{Key: "a", Limit: 1, Duration: time.Second, Meta: meta})
			return err
		})
		synctest.Wait()
	}
	require.NoError(t, all.Wait())
	require.Len(t, s.admitted, 100)
}

func TestWaitersAreAdmittedInOrderOfArrival(t *testing.T) {
	for name, made := range map[string]func(l *Limiter) Strategy{
		"FixedWindow":   func(l *Limiter) Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *Limiter) Strategy { return l.SlidingWindow() },
		"SlidingLog":    func(l *Limiter) Strategy { return l.SlidingLog() },
		"TokenBucket":   func(l *Limiter) Strategy { return l.TokenBucket(1) },
		"Counter":       func(l *Limiter) Strategy { return l.Counter() },
		"LeakyBucket":   func(l *Limiter) Strategy { return l.LeakyBucket(0) },
		"a queue of 3":  func(l *Limiter) Strategy { return l.LeakyBucket(3) },
	} {
		for composed, in := range map[string]func(Strategy) Strategy{
			"alone":  func(s Strategy) Strategy { return s },
			"Policy": func(s Strategy) Strategy { return keyedFor("p", s, 1, time.Second) },
		} {
			t.Run(name+"/"+composed, func(t *testing.T) {
				Waiting(t, func(t *testing.T, l *Limiter) {
					s := watchRuns(made(l))
					inTurn(t, Wait, s, in(s))
					assert.Equal(t, numbers(100), s.admitted)
					assert.LessOrEqual(t, s.n, 200, "calls of Run")
				})
			})
		}
	}
}

func TestWaitersInOrderControlIsRejected(t *testing.T) {
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := watchRuns(l.FixedWindow())
		inTurn(t, crowd, s, s)
		assert.Equal(t, 5050, s.n)
		assert.NotEqual(t, numbers(100), s.admitted)
	})
}

// overlap returns how many calls of Run for one key were under way at once, where one caller of
// each key waits when many more arrive at the same time, half of whom give up at some instant.
func overlap(t *testing.T, wait waitFunc) (most int) {
	const keys, callers, limit = 4, 60, 5
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := watchRuns(l.FixedWindow())
		var all sync.WaitGroup
		var done, gaveUp atomic.Int64
		join := func(i int) {
			ctx := t.Context()
			if i%2 == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(rand.N(10*time.Second), cancel)
			}
			all.Go(func() {
				r := &Request{Key: strconv.Itoa(i % keys), Limit: limit, Duration: time.Second}
				switch _, err := wait(ctx, s, r); {
				case err == nil:
					done.Add(1)
				case assert.ErrorIs(t, err, context.Canceled):
					gaveUp.Add(1)
				}
			})
		}
		for i := range keys {
			r := &Request{Key: strconv.Itoa(i), Limit: limit, Duration: time.Second, Cost: limit}
			MustRun(t, s, r)
			join(i)
		}
		synctest.Wait()
		for i := range keys * callers {
			join(i)
		}
		all.Wait()
		assert.EqualValues(t, keys*(callers+1), done.Load()+gaveUp.Load())
		assert.Len(t, s.admitted, keys+int(done.Load()))
		most = s.most
	})
	return most
}

func TestOnlyTheFirstWaiterAsks(t *testing.T) {
	for range 10 {
		assert.Equal(t, 1, overlap(t, Wait))
	}
}

func TestOnlyTheFirstWaiterControlIsRejected(t *testing.T) {
	assert.Greater(t, overlap(t, crowd), 1)
}

// Callers with any cost and deadline arrive at any time: those that are admitted are in order, and
// nobody is late.
func TestWaitersInOrderWhateverTheirCostAndDeadline(t *testing.T) {
	for seed := range uint64(10) {
		Waiting(t, func(t *testing.T, l *Limiter) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := watchRuns(l.SlidingLog())
			var all errgroup.Group
			var late atomic.Int64
			for i := range 200 {
				time.Sleep(time.Duration(random.IntN(200))*time.Millisecond + time.Microsecond)
				r := &Request{Key: "a", Limit: 5, Duration: time.Second, Cost: random.Uint64N(7),
					Meta: strconv.Itoa(i)}
				patience := time.Duration(random.IntN(10_000)) * time.Millisecond
				ctx, stop := context.WithCancel(t.Context())
				if random.IntN(2) == 0 {
					ctx, stop = context.WithTimeout(t.Context(), patience)
				} else {
					time.AfterFunc(patience, stop)
				}
				all.Go(func() error {
					defer stop()
					start := time.Now()
					waited, err := Wait(ctx, s, r)
					assert.Equal(t, time.Since(start), waited)
					assert.LessOrEqual(t, waited, patience)
					switch {
					case r.Cost > r.Limit:
						assert.ErrorIs(t, err, ErrLimit)
						assert.Zero(t, waited, "a request that can never pass")
					case errors.Is(err, context.DeadlineExceeded) && waited == patience:
						late.Add(1) // it could not know
					case err != nil && !errors.Is(err, context.DeadlineExceeded):
						assert.ErrorIs(t, err, context.Canceled)
						assert.Equal(t, patience, waited)
					}
					return nil
				})
			}
			require.NoError(t, all.Wait())
			var order []int
			for _, meta := range s.admitted {
				i, err := strconv.Atoi(meta)
				require.NoError(t, err)
				order = append(order, i)
			}
			assert.Greater(t, len(order), 20)
			assert.True(t, slices.IsSorted(order), "%v", order)
			assert.Zero(t, late.Load(), "the deadline of one in the queue")
		})
	}
}

type uncomparable struct {
	Strategy
	names []string
}

type functional func(*Request) (*Result, error)

func (f functional) Run(_ context.Context, r *Request) (*Result, error) { return f(r) }

type weighted struct {
	Strategy
	weight float64
}

func TestWaitIDs(t *testing.T) {
	l := MustNew(t, Config{})
	fixed, none := l.FixedWindow(), functional(nil)
	around := &weighted{fixed, 1}
	for what, tt := range map[string]struct {
		s, other Strategy
		same     bool
	}{
		"a strategy":                    {fixed, fixed, true},
		"equal strategies":              {fixed, l.FixedWindow(), true},
		"two strategies":                {fixed, l.SlidingWindow(), false},
		"a struct around a strategy":    {weighted{fixed, 1}, weighted{fixed, 1}, true},
		"two structs around a strategy": {weighted{fixed, 1}, weighted{fixed, 2}, false},
		"a pointer":                     {around, around, true},
		"two pointers":                  {around, &weighted{fixed, 1}, false},
		"a policy":                      {policyOf("p", fixed, 1, 2), policyOf("p", fixed, 1, 2), true},
		"policies of two names":         {policyOf("p", fixed, 1, 2), policyOf("q", fixed, 1, 2), false},
		"policies of two limits":        {policyOf("p", fixed, 1, 2), policyOf("p", fixed, 2, 2), false},
		"policies of two durations":     {policyOf("p", fixed, 1, 2), policyOf("p", fixed, 1, 3), false},
		"a policy on a pointer":         {policyOf("p", around, 1, 2), policyOf("p", around, 1, 2), true},
		"a struct with a slice":         {uncomparable{fixed, nil}, uncomparable{fixed, nil}, false},
		"a struct around a pointer":     {weighted{around, 1}, weighted{around, 1}, true},
		"a function":                    {none, none, false},
		"a policy on a function":        {policyOf("p", none, 1, 2), policyOf("p", none, 1, 2), false},
		"a number that is not equal to any": {weighted{fixed, math.NaN()}, weighted{fixed, math.NaN()},
			false},
	} {
		one := newWaitID(CounterOf(tt.s), &fivePerMinute)
		two := newWaitID(CounterOf(tt.other), &fivePerMinute)
		assert.Equal(t, tt.same, one == two && one.Of != nil, what)
		assert.NotPanics(t, func() { _ = map[turns.ID]bool{one: true, two: true} }, what)
	}
}

// Callers whose strategy cannot be compared have no queue, and are all admitted.
func TestWaitersWithoutAQueue(t *testing.T) {
	for what, in := range map[string]func(s Strategy) Strategy{
		"a struct with a slice":             func(s Strategy) Strategy { return uncomparable{s, nil} },
		"a number that is not equal to any": func(s Strategy) Strategy { return weighted{s, math.NaN()} },
		"a function": func(s Strategy) Strategy {
			return functional(func(r *Request) (*Result, error) { return s.Run(context.Background(), r) })
		},
	} {
		Waiting(t, func(t *testing.T, l *Limiter) {
			s, r := in(l.SlidingLog()), Request{Key: "a", Limit: 1, Duration: time.Minute}
			var all []*outcome
			for range 5 {
				all = append(all, arrive(t.Context(), s, r))
			}
			assert.Zero(t, turns.Queues(), what)
			time.Sleep(4 * time.Minute)
			for _, o := range all {
				o.wantOver(t, nil, what)
			}
		})
	}
}

// However near the instants are, a queue passes as many as the limit.
func TestWaitersPassAtTheRateOfTheLimit(t *testing.T) {
	const gap = 10 * time.Microsecond
	r := Request{Key: "a", Limit: 100_000, Duration: time.Second}
	for name, made := range map[string]func(l *Limiter) Strategy{
		"TokenBucket": func(l *Limiter) Strategy { return l.TokenBucket(1) },
		"LeakyBucket": func(l *Limiter) Strategy { return l.LeakyBucket(0) },
	} {
		Waiting(t, func(t *testing.T, l *Limiter) {
			s, start := watchRuns(made(l)), time.Now()
			var all errgroup.Group
			for range 1000 {
				all.Go(func() error {
					_, err := Wait(t.Context(), s, &r)
					return err
				})
			}
			require.NoError(t, all.Wait())
			assert.Equal(t, 999*gap, time.Since(start), name)
			assert.LessOrEqual(t, s.n, 3000, "calls of Run")
		})
	}
}

// policyOf returns a strategy of another package that counts for a limit.
func policyOf(name string, s Strategy, n uint64, d time.Duration) *keyed {
	return keyedFor(name, s, n, d)
}
