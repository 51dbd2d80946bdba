package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// passing is a caller that was admitted: as of an instant, and later.
type passing struct{ due, at time.Time }

// lateStrategy has whoever waits for it be woken late, and notes who is admitted. It can be
// compared.
type lateStrategy struct {
	Strategy
	notes *lateNotes
}

type lateNotes struct {
	kind lineKind
	by   func() time.Duration // how late a timer is

	mu     sync.Mutex
	passed []passing // guarded by mu
}

func (s lateStrategy) Run(ctx context.Context, r *Request) (*Result, error) {
	due := time.Now()
	if turns.IsDue(ctx) {
		if due = turns.UseDue(ctx); !due.Before(time.Now()) { // else it was not woken by a timer
			time.Sleep(s.notes.by()) // of a bubble
		}
	}
	res, err := s.Strategy.Run(ctx, r)
	if err == nil && res.Allowed() {
		if of := s.notes.kind.due; of != nil {
			due = of(res)
		}
		s.notes.mu.Lock()
		s.notes.passed = append(s.notes.passed, passing{due, time.Now()})
		s.notes.mu.Unlock()
	}
	return res, err
}

// Peek is that of the strategy.
func (s lateStrategy) Peek(ctx context.Context, r *Request) (*Result, error) {
	return ops.Peek(ctx, s.Strategy, r)
}

// lineKind is a kind of limit with a line: so many in a Duration.
type lineKind struct {
	name string
	n    uint64
	d    time.Duration
	of   func(t *testing.T, l *Limiter, n uint64, d time.Duration) Strategy
	// due returns as of when a caller from the line was admitted; nil: as of when it asked
	due func(res *Result) time.Time
}

func (k lineKind) each() time.Duration { return k.d / time.Duration(k.n) }

// kindsOfLines returns the kinds with limits of n in d. LeakyBucket's own line has a test below.
func kindsOfLines(n uint64, d time.Duration) (kinds []lineKind) {
	ago := func(d time.Duration) func(res *Result) time.Time {
		return func(res *Result) time.Time { return res.ExpiresAt.Add(-d) }
	}
	add := func(name string, due func(res *Result) time.Time, of func(t *testing.T, l *Limiter) Strategy) {
		kinds = append(kinds, lineKind{name, n, d,
			func(t *testing.T, l *Limiter, _ uint64, _ time.Duration) Strategy { return of(t, l) }, due})
	}
	each := (d-1)/time.Duration(n) + 1
	add("TokenBucket(1)", ago(each), func(_ *testing.T, l *Limiter) Strategy { return l.TokenBucket(1) })
	add("TokenBucket(5)", nil, func(_ *testing.T, l *Limiter) Strategy { return l.TokenBucket(5) })
	add("LeakyBucket(0)", ago(each), func(_ *testing.T, l *Limiter) Strategy { return l.LeakyBucket(0) })
	add("SlidingLog", ago(d), func(_ *testing.T, l *Limiter) Strategy { return l.SlidingLog() })
	add("SlidingWindow", nil, func(_ *testing.T, l *Limiter) Strategy { return l.SlidingWindow() })
	add("Counter", nil, func(_ *testing.T, l *Limiter) Strategy { return l.Counter() })
	add("List", nil, func(_ *testing.T, l *Limiter) Strategy { return l.List() })
	add("Tiers", nil, func(t *testing.T, l *Limiter) Strategy {
		return MustTiers(t, l, Tier{n, d}, Tier{3 * n, 4 * d})
	})
	add("a Limit", ago(each), func(_ *testing.T, l *Limiter) Strategy { return l.TokenBucket(1).Limit(n, d) })
	return kinds
}

// line is a line of callers in a loop of waits, beside others that come and give up.
type line struct {
	callers, leavers int
	late             func() time.Duration
	around           func(lateStrategy) Strategy // a control; nil: none
	seed             uint64
	during           time.Duration
}

// run returns who was admitted, in order.
func (in line) run(t *testing.T, kind lineKind) (passed []passing) {
	Waiting(t, func(t *testing.T, l *Limiter) {
		random := rand.New(rand.NewPCG(in.seed, 0))
		late := lateStrategy{kind.of(t, l, kind.n, kind.d), &lateNotes{kind: kind, by: in.late}}
		var s Strategy = late
		if in.around != nil {
			s = in.around(late)
		}
		until, cancel := context.WithTimeout(t.Context(), in.during)
		defer cancel()
		wait := func(ctx context.Context) error {
			_, err := Wait(ctx, s, &Request{Key: "a", Limit: kind.n, Duration: kind.d})
			return err
		}
		var all sync.WaitGroup
		for range in.callers {
			all.Go(func() {
				ctx := context.WithoutCancel(until) // its deadline would end the wait too soon
				for until.Err() == nil && wait(ctx) == nil {
				}
			})
			synctest.Wait()
		}
		for range in.leavers {
			arrives := time.Duration(random.Int64N(int64(in.during)))
			stays := time.Duration(random.Int64N(int64(time.Duration(in.callers+in.leavers) * kind.each())))
			all.Go(func() {
				time.Sleep(arrives)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(stays, cancel)
				_ = wait(ctx)
			})
		}
		all.Wait()
		passed = late.notes.passed
	})
	return passed
}

// dues returns as of when the first n were admitted, since the first of them.
func dues(passed []passing, n int) (list []time.Duration) {
	for _, p := range passed[:min(n, len(passed))] {
		list = append(list, p.due.Sub(passed[0].due))
	}
	return list
}

// broken returns which law of a line who passed breaks, or "": in order of their instants, none is
// admitted before it is due or more than turns.MaxLate after that, and the limit holds for them.
func broken(t *testing.T, kind lineKind, passed []passing) string {
	var now time.Time
	exact := MustNew(t, Config{SweepEvery: time.Hour, Now: func() time.Time { return now }})
	s, r := kind.of(t, exact, kind.n, kind.d), Request{Key: "a", Limit: kind.n, Duration: kind.d}
	for i, p := range passed {
		switch late := p.at.Sub(p.due); {
		case late < 0:
			return fmt.Sprintf("%d is admitted %v before it is due", i, -late)
		case kind.due != nil && late > turns.MaxLate:
			return fmt.Sprintf("%d is admitted %v after it is due", i, late)
		case i > 0 && p.due.Before(passed[i-1].due):
			return fmt.Sprintf("%d is due before the one before it", i)
		}
		if now = p.due; kind.due == nil && p.at.Sub(now) > turns.MaxLate {
			now = p.at.Add(-turns.MaxLate)
		}
		if res := MustRun(t, s, &r); !res.Allowed() {
			return fmt.Sprintf("%d is over the limit by %v", i, res.ExpiresAt.Sub(now))
		}
	}
	return ""
}

// However late those in a line are woken, and whoever gives up: they are admitted as of the
// instants at which they would be if nobody were late and nobody gave up.
func TestALineKeepsItsRate(t *testing.T) {
	const callers = 40
	for _, rate := range []struct {
		n uint64
		d time.Duration
	}{{300, time.Second}, {1000, time.Second}, {5000, time.Second}, {10, 10 * time.Millisecond}} {
		for _, kind := range kindsOfLines(rate.n, rate.d) {
			if rate.d == time.Second && rate.n > 300 && kind.due == nil {
				continue // they are the same code, and take long
			}
			in := line{callers: callers, late: func() time.Duration { return 0 }, during: 3 * rate.d / 2}
			exact := in.run(t, kind)
			require.Greater(t, len(exact), int(rate.n), kind.name)
			assert.Empty(t, broken(t, kind, exact), kind.name)
			for seed := range uint64(slow.N(1, 2, 10)) {
				random := rand.New(rand.NewPCG(seed, 1))
				most := min(turns.MaxLate, callers*kind.each()/3) // then the line does not run dry
				in.late = func() time.Duration { return rand.N(most) }
				in.seed, in.leavers = seed, random.IntN(40)
				passed := in.run(t, kind)
				what := fmt.Sprintf("%s, %d in %v, seed %d", kind.name, rate.n, rate.d, seed)
				assert.Empty(t, broken(t, kind, passed), what)
				assert.Equal(t, dues(exact, int(rate.n)), dues(passed, int(rate.n)), what)
			}
		}
	}
}

// A pause of the whole process is caught up as far as turns.MaxLate.
func TestALineCatchesUpABoundedTime(t *testing.T) {
	for _, kind := range kindsOfLines(1000, time.Second) {
		paused := false
		in := line{callers: 1000, during: 2 * time.Second, late: func() (d time.Duration) {
			if !paused {
				paused, d = true, 700*time.Millisecond
			}
			return d
		}}
		assert.Empty(t, broken(t, kind, in.run(t, kind)), kind.name)
	}
}

// lossy decides at the present.
type lossy struct{ lateStrategy }

func (s lossy) Run(ctx context.Context, r *Request) (*Result, error) {
	if turns.IsDue(ctx) && !turns.UseDue(ctx).Before(time.Now()) {
		time.Sleep(s.notes.by()) // of a bubble
	}
	return s.lateStrategy.Run(context.Background(), r)
}

// unbounded decides as of the instant that ctx has, however long ago that is.
type unbounded struct{ lateStrategy }

func (s unbounded) Run(ctx context.Context, r *Request) (*Result, error) {
	log := s.Strategy.(*SlidingLog)
	asOf := present
	if turns.IsDue(ctx) {
		due := turns.UseDue(ctx)
		if !due.Before(time.Now()) {
			time.Sleep(s.notes.by()) // of a bubble
		}
		asOf = log.l.clock.Instant(due)
	}
	v, at, err := log.decide(r, asOf, nil)
	if err != nil {
		return nil, err
	}
	if v.Allowed {
		s.notes.passed = append(s.notes.passed, passing{log.l.clock.Time(at.Now), time.Now()})
	}
	return log.l.result(v), nil
}

func TestALineThatLosesLatenessIsRejected(t *testing.T) {
	kind := kindsOfLines(1000, time.Second)[0]
	in := line{callers: 40, late: func() time.Duration { return 0 }, during: time.Second}
	exact := in.run(t, kind)
	in.around = func(s lateStrategy) Strategy { return lossy{s} }
	assert.Equal(t, dues(exact, 900), dues(in.run(t, kind), 900), "nobody is late")
	in.late = func() time.Duration { return time.Millisecond / 2 }
	assert.NotEqual(t, dues(exact, 500), dues(in.run(t, kind), 500))
}

func TestALineThatCatchesUpWithoutABoundIsRejected(t *testing.T) {
	kinds := kindsOfLines(1000, time.Second)
	log := kinds[slices.IndexFunc(kinds, func(k lineKind) bool { return k.name == "SlidingLog" })]
	log.n = 10
	paused := false
	in := line{callers: 100, during: 3 * time.Second, late: func() (d time.Duration) {
		if !paused {
			paused, d = true, 1500*time.Millisecond
		}
		return d
	}}
	assert.Empty(t, broken(t, log, in.run(t, log)), "the pause alone")
	paused, in.around = false, func(s lateStrategy) Strategy { return unbounded{s} }
	assert.Contains(t, broken(t, log, in.run(t, log)), "after it is due")
}

// In no span do more return from Wait than the limit admits in one that is longer by turns.MaxLate.
func TestWaitIsLateByABoundedTime(t *testing.T) {
	kind := kindsOfLines(1000, time.Second)[0]
	in := line{callers: 200, during: time.Second, late: func() time.Duration { return rand.N(150 * time.Millisecond) }}
	passed := in.run(t, kind)
	for _, span := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond} {
		most := 1 + int((span+turns.MaxLate)/kind.each())
		for i := range passed {
			n := i
			for n < len(passed) && passed[n].at.Before(passed[i].at.Add(span)) {
				n++
			}
			assert.LessOrEqual(t, n-i, most, "%v from %d on", span, i)
		}
	}
}

// leavingRate has callers in a loop of Run, and returns when they left, of a LeakyBucket of 1,000
// in a second on a clock.
func leavingRate(t *testing.T, cfg Config, during time.Duration) (left []passing) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, cfg)
		s, r := l.LeakyBucket(100), Request{Key: "a", Limit: 1000, Duration: time.Second}
		var all sync.WaitGroup
		var mu sync.Mutex
		until := time.Now().Add(during)
		for range 50 {
			all.Go(func() {
				for time.Now().Before(until) {
					res := MustRun(t, s, &r)
					mu.Lock()
					left = append(left, passing{res.ExpiresAt.Add(-time.Millisecond), l.clock.Time(l.clock.Read())})
					mu.Unlock()
				}
			})
		}
		all.Wait()
	})
	return left
}

func TestTheLineOfALeakyBucketKeepsItsRate(t *testing.T) {
	steps := func() time.Time { return time.Now().Truncate(7 * time.Millisecond) }
	for what, cfg := range map[string]Config{
		"exact": {}, "woken late": {Now: steps},
	} {
		left := leavingRate(t, cfg, time.Second)
		require.GreaterOrEqual(t, len(left), 1000, what)
		slices.SortFunc(left, func(a, b passing) int { return a.due.Compare(b.due) })
		for i, p := range left {
			assert.Equal(t, left[0].due.Add(time.Duration(i)*time.Millisecond), p.due, "%s, %d", what, i)
		}
	}
}

func TestTheLineOfALeakyBucketCatchesUpABoundedTime(t *testing.T) {
	var start time.Time
	pauses := func() time.Time { // it stands still for 700 ms
		now := time.Now()
		if start.IsZero() {
			start = now
		}
		if since := now.Sub(start); 100*time.Millisecond < since && since < 800*time.Millisecond {
			return start.Add(100 * time.Millisecond)
		}
		return now
	}
	at := map[time.Duration]int{}
	for _, p := range leavingRate(t, Config{Now: pauses}, time.Second) {
		at[p.at.Sub(start)]++
	}
	assert.InDelta(t, turns.MaxLate.Milliseconds(), at[800*time.Millisecond], 51, "who had come by then")
	assert.Greater(t, at[800*time.Millisecond], 40)
}
