package weir_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

func TestRemainingIsNeverNegative(t *testing.T) {
	for _, tt := range []struct{ total, limit, want uint64 }{
		{0, 0, 0}, {0, 3, 3}, {2, 3, 1}, {3, 3, 0}, {4, 3, 0}, {^uint64(0), 3, 0},
		{1, ^uint64(0), ^uint64(0) - 1},
	} {
		assert.Equal(t, tt.want, weir.Result{TotalRequests: tt.total}.Remaining(tt.limit), "%+v", tt)
	}
}

func TestWaitSleepsUntilTheInstantTheDenial(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		r := &weir.Request{Key: "a", Limit: 2, Duration: time.Minute}
		for _, want := range []time.Duration{0, 0, time.Minute, 0, time.Minute} {
			waited, err := weir.Wait(t.Context(), s, r)
			require.NoError(t, err)
			assert.Equal(t, want, waited)
		}
	})
}

// Where nobody waits for the key, a wait is an Allow.
func TestWaitOfAKnownCallerAllocatesNothing(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, m := range map[string]*weir.Limit{
		"FixedWindow":   l.FixedWindow().Limit(1<<40, time.Hour),
		"SlidingWindow": l.SlidingWindow().Limit(1<<40, time.Hour),
		"TokenBucket":   l.TokenBucket(1<<20).Limit(1<<40, time.Hour),
		"Counter":       l.Counter().Limit(1<<40, time.Hour),
		"Calendar":      l.Calendar(weir.Day, time.UTC).Limit(1 << 40),
	} {
		require.NoError(t, m.Wait(ctx, "a"))
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = m.Wait(ctx, "a") }), name)
		r := &weir.Request{Key: "a"}
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = weir.Wait(ctx, m, r) }), name)
	}
	busy, others := l.TokenBucket(1).Limit(1, 24*time.Hour), l.TokenBucket(1).Limit(1<<30, time.Second)
	require.NoError(t, busy.Wait(ctx, "a"))
	var waits errgroup.Group
	waits.Go(func() error { return busy.Wait(ctx, "a") })
	require.Eventually(t, turns.Any, time.Minute, time.Millisecond)
	require.NoError(t, others.Wait(ctx, "a"))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = others.Wait(ctx, "a") }), "others wait elsewhere")
	cancel()
	assert.ErrorIs(t, waits.Wait(), context.Canceled)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
		_, err := weir.Wait(t.Context(), s, r)
		require.NoError(t, err)

		near, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		waited, err := weir.Wait(near, s, r)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, waited, "the deadline is nearer than the instant")
		assert.NoError(t, near.Err())

		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		waited, err = weir.Wait(canceled, s, r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, waited)
		fresh := &weir.Request{Key: "b", Limit: 1, Duration: time.Minute}
		_, err = weir.Wait(canceled, s, fresh)
		assert.ErrorIs(t, err, context.Canceled, "no caller waits")
		res := weir.MustPeek(t, s, fresh)
		assert.True(t, res.Allowed(), "an error counts nothing")

		enough, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waited, err = weir.Wait(enough, s, r)
		assert.NoError(t, err)
		assert.Equal(t, 59*time.Second, waited)
	})
}

func TestWaitReturnsImpossibleRequests(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		_, err := weir.Wait(t.Context(), l.FixedWindow(),
			&weir.Request{Key: "a", Limit: 3, Duration: time.Second,
				Cost: 4})
		assert.ErrorIs(t, err, weir.ErrLimit)
		_, err = weir.Wait(t.Context(), l.FixedWindow(), &weir.Request{Key: "a", Duration: time.Second})
		assert.EqualError(t, err, "weir: bad limit: a cost of 1 can never pass")
		_, err = weir.Wait(t.Context(), l.FixedWindow(), &weir.Request{Limit: 3, Duration: time.Second})
		assert.ErrorIs(t, err, weir.ErrID)
	})
}

// Every waiter is admitted in the end, and no window exceeds its limit.
func TestWaitersAllPass(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s, start := l.FixedWindow(), time.Now()
		var all errgroup.Group
		for range 50 {
			all.Go(func() error {
				_, err := weir.Wait(t.Context(), s, &weir.Request{Key: "a", Limit: 5, Duration: time.Second})
				return err
			})
		}
		require.NoError(t, all.Wait())
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)
		assert.Greater(t, time.Since(start), 8*time.Second)
	})
}

// behind names each of its instants in turn, and denies until its clock, which is late, has passed
// the last one.
type behind struct {
	late     time.Duration
	instants []time.Duration
	tries    *[]time.Duration // when it was asked
}

func (s behind) Run(context.Context, *weir.Request) (*weir.Result, error) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a synctest bubble
	*s.tries = append(*s.tries, time.Since(start))
	for _, instant := range s.instants {
		if time.Since(start)-s.late < instant {
			return &weir.Result{ExpiresAt: start.Add(instant)}, nil
		}
	}
	return &weir.Result{State: weir.Allow}, nil
}

func TestWaitBacksOffWhereTheClockOfTheStrategyIsBehind(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		what     string
		late     time.Duration
		instants []time.Duration
		want     []time.Duration // when Wait asks
	}{
		{"a clock that is not behind is asked at the instant",
			0, []time.Duration{time.Minute}, []time.Duration{0, time.Minute}},
		{"an instant that is a millisecond away counts as any other",
			2 * ms, []time.Duration{ms}, []time.Duration{0, ms, 2 * ms, 4 * ms}},
		{"after a millisecond, and then twice as long each time",
			10 * ms, []time.Duration{60 * ms},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 67 * ms, 75 * ms}},
		{"after a millisecond again where a later instant is named",
			10 * ms, []time.Duration{60 * ms, 100 * ms},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 67 * ms, 75 * ms,
				100 * ms, 101 * ms, 103 * ms, 107 * ms, 115 * ms}},
		{"at a later instant that is nearer than a millisecond",
			2 * ms, []time.Duration{60 * ms, 63*ms + ms/2},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 63*ms + ms/2, 64*ms + ms/2, 66*ms + ms/2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var tries []time.Duration
			waited, err := weir.Wait(t.Context(), behind{tt.late, tt.instants, &tries},
				&weir.Request{Key: "a"})
			require.NoError(t, err, tt.what)
			assert.Equal(t, tt.want, tries, tt.what)
			assert.Equal(t, tt.want[len(tt.want)-1], waited, tt.what)
		})
	}
}

func TestWaitReturnsTheErrorOfTheStrategy(t *testing.T) {
	down := errors.New("down")
	_, err := weir.Wait(t.Context(), failing{down}, &weir.Request{Key: "a"})
	assert.ErrorIs(t, err, down)
}

type failing struct{ err error }

func (s failing) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, s.err }

// arrive has a caller wait in the background, and returns its result.
func arrive(ctx context.Context, s weir.Strategy, r weir.Request) *outcome {
	o := &outcome{}
	go func() {
		o.waited, o.err = weir.Wait(ctx, s, &r)
		o.over.Store(true)
	}()
	synctest.Wait()
	return o
}

type outcome struct {
	waited time.Duration
	err    error
	over   atomic.Bool
}

// wantOver checks that the caller has returned, with an error that is err.
func (o *outcome) wantOver(t *testing.T, err error, what string) bool {
	t.Helper()
	synctest.Wait()
	return assert.True(t, o.over.Load(), what) && assert.ErrorIs(t, o.err, err, what)
}

// want checks that the caller has returned after waited, with an error that is err.
func (o *outcome) want(t *testing.T, waited time.Duration, err error, what string) {
	t.Helper()
	if o.wantOver(t, err, what) {
		assert.Equal(t, waited, o.waited, what)
	}
}

func (o *outcome) wantWaiting(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	assert.False(t, o.over.Load(), what)
}

var fivePerMinute = weir.Request{Key: "a", Limit: 5, Duration: time.Minute}

// costing returns r with a cost.
func costing(r weir.Request, cost uint64) weir.Request {
	r.Cost = cost
	return r
}

func TestWaitersLeaveTheQueueWithTheirContext(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		arrive(t.Context(), s, fivePerMinute).want(t, 0, nil, "nobody waits")
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		large := arrive(first, s, costing(fivePerMinute, 5))
		middle := arrive(second, s, fivePerMinute)
		small := arrive(t.Context(), s, costing(fivePerMinute, 4))
		last := arrive(t.Context(), s, fivePerMinute)

		time.Sleep(time.Second)
		small.wantWaiting(t, "4 would be admitted, but a larger cost is in front of it")
		leaveSecond()
		middle.want(t, time.Second, context.Canceled, "in the middle of the queue")
		small.wantWaiting(t, "the first is still there")

		time.Sleep(time.Second)
		leaveFirst()
		large.want(t, 2*time.Second, context.Canceled, "the first")
		small.want(t, 2*time.Second, nil, "the next takes over at once")
		last.wantWaiting(t, "the limit is used up")
		time.Sleep(58 * time.Second)
		last.want(t, time.Minute, nil, "at its instant")
	})
}

func TestWaitersFailWhenTheyCanKnowThatTheirDeadlineIsTooNear(t *testing.T) {
	within := func(t *testing.T, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := watchRuns(l.SlidingLog())
		one := weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
		for range 2 { // admitted at 0 and 60 s
			arrive(t.Context(), s, one)
		}
		asked := s.count()
		arrive(within(t, 59*time.Second), s, one).
			want(t, 0, context.DeadlineExceeded, "the first in the queue waits longer")
		assert.Equal(t, asked, s.count(), "calls of Run")

		second := arrive(t.Context(), s, one)                // admitted at 120 s
		third := arrive(within(t, 119*time.Second), s, one)  // can know at 60 s
		fourth := arrive(within(t, 150*time.Second), s, one) // can know at 120 s
		fifth := arrive(within(t, 120*time.Second), s, one)  // at 60 s it may still be in time
		sixth := arrive(within(t, 200*time.Second), s, one)  // admitted at 180 s
		time.Sleep(time.Minute - 1)
		third.wantWaiting(t, "the first in the queue asks before its deadline")
		time.Sleep(1)
		third.want(t, time.Minute, context.DeadlineExceeded, "the new first waits longer")
		fourth.wantWaiting(t, "the first in the queue asks before its deadline")
		fifth.wantWaiting(t, "the first in the queue asks at its deadline")
		time.Sleep(time.Minute)
		second.want(t, 2*time.Minute, nil, "behind the first")
		fifth.want(t, 2*time.Minute, context.DeadlineExceeded, "behind the second")
		fourth.want(t, 2*time.Minute, context.DeadlineExceeded, "behind the second")
		time.Sleep(time.Minute)
		sixth.want(t, 3*time.Minute, nil, "those before it have given up")
	})
}

// A larger cost finds its own instant, if the strategy can be peeked at.
func TestLargerCostFailsAtOnceIfItsDeadlineIsTooNear(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		for range 3 {
			arrive(t.Context(), s, costing(fivePerMinute, 2)) // the third waits until 60 s
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 57*time.Second+time.Second/2) // until 60.5 s
		defer cancel()
		arrive(ctx, s, costing(fivePerMinute, 4)).want(t, 0, context.DeadlineExceeded,
			"4 would pass at 61 s")
	})
}

func TestImpossibleRequestsFailAtOnceBehindOthers(t *testing.T) {
	for what, tt := range map[string]struct {
		of    func(l *weir.Limiter) weir.Strategy
		least uint64 // cost that can never pass, where the Limit is 5
	}{
		"a cost over the limit": {func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }, 6},
		"a cost over the burst": {func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(3) }, 4},
		"a cost over a policy": {func(l *weir.Limiter) weir.Strategy {
			return weir.KeyedFor("p", l.FixedWindow(), 2, time.Minute)
		}, 3},
		"a cost over a tier": {func(l *weir.Limiter) weir.Strategy {
			return weir.MustTiers(t, l, weir.Tier{2, time.Second}, weir.Tier{2, time.Minute})
		}, 3},
		"a cost over the limit, where there is no Peeker": {func(l *weir.Limiter) weir.Strategy {
			return watchRuns(l.FixedWindow())
		}, 6},
	} {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			s := tt.of(l)
			most := tt.least - 1
			arrive(t.Context(), s, costing(fivePerMinute, most)).want(t, 0, nil, what)
			first := arrive(t.Context(), s, fivePerMinute)
			first.wantWaiting(t, what)
			arrive(t.Context(), s, costing(fivePerMinute, tt.least)).want(t, 0, weir.ErrLimit, what)
			second := arrive(t.Context(), s, costing(fivePerMinute, most))
			second.wantWaiting(t, what)
			time.Sleep(2 * time.Minute)
			first.wantOver(t, nil, what)
			second.wantOver(t, nil, what)
		})
	}
}

// Where only Run knows that a request can never pass, it learns that in its turn.
func TestImpossibleRequestsFailInTheirTurn(t *testing.T) {
	for what, in := range map[string]func(s weir.Strategy) weir.Strategy{
		"a bucket that is no Peeker": func(s weir.Strategy) weir.Strategy { return watchRuns(s) },
		"a policy on it": func(s weir.Strategy) weir.Strategy {
			return weir.KeyedFor("p", watchRuns(s), 5, time.Minute)
		},
	} {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			s := in(l.TokenBucket(3))
			arrive(t.Context(), s, costing(fivePerMinute, 3))
			first := arrive(t.Context(), s, fivePerMinute)
			impossible := arrive(t.Context(), s, costing(fivePerMinute, 4))
			behind := arrive(t.Context(), s, fivePerMinute)
			impossible.wantWaiting(t, what)
			time.Sleep(12 * time.Second)
			first.want(t, 12*time.Second, nil, what)
			impossible.want(t, 12*time.Second, weir.ErrLimit, what)
			time.Sleep(12 * time.Second)
			behind.want(t, 24*time.Second, nil, what)
		})
	}
}

// peeked notes the costs of peeks, which fail with an error if there is one.
type peeked struct {
	*weir.SlidingLog
	says  *weir.About
	costs []uint64
	err   error
}

func (p *peeked) About() *weir.About { return p.says }

func (p *peeked) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb == weir.OpPeek {
			p.costs = append(p.costs, op.Cost)
			op.Err = p.err
		}
		if op.Verb != weir.OpPeek || p.err == nil {
			_ = weir.Do(ctx, p.SlidingLog, op)
		}
	}
}

// Peek is for a cost larger than those that have joined the queue, and Run for the first only.
func TestWaitersPeekAtLargerCostsOnly(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s, down := &peeked{SlidingLog: l.SlidingLog()}, errors.New("down")
		s.says = s.SlidingLog.About().By(s)
		ctx, leave := context.WithCancel(t.Context())
		var left []*outcome
		for _, cost := range []uint64{5, 2, 1, 2, 3, 3, 2, 5, 4} {
			left = append(left, arrive(ctx, s, costing(fivePerMinute, cost)))
		}
		assert.Equal(t, []uint64{3, 5}, s.costs)
		s.err = down
		arrive(ctx, s, costing(fivePerMinute, 6)).want(t, 0, down, "the error of Peek")
		leave()
		for _, o := range left[1:] {
			o.want(t, 0, context.Canceled, "it waits")
		}
	})
}

// answers is a Strategy that is scripted.
type answers func(r *weir.Request) (*weir.Result, error)

func (f *answers) Run(_ context.Context, r *weir.Request) (*weir.Result, error) { return (*f)(r) }

func TestNextWaiterTakesOverFromOneThatFails(t *testing.T) {
	down := errors.New("down")
	weir.Waiting(t, func(t *testing.T, _ *weir.Limiter) {
		opens := time.Now().Add(time.Minute)
		s := answers(func(r *weir.Request) (*weir.Result, error) {
			switch {
			case time.Now().Before(opens):
				return &weir.Result{ExpiresAt: opens}, nil
			case r.Meta == "fails":
				return nil, down
			case r.Meta == "panics":
				panic(down)
			}
			return &weir.Result{State: weir.Allow}, nil
		})
		fails := arrive(t.Context(), &s, weir.Request{Key: "a", Meta: "fails"})
		caught := make(chan any)
		go func() {
			defer func() { caught <- recover() }()
			_, _ = weir.Wait(t.Context(), &s, &weir.Request{Key: "a", Meta: "panics"})
		}()
		synctest.Wait()
		passes := arrive(t.Context(), &s, weir.Request{Key: "a"})
		assert.Equal(t, down, <-caught)
		fails.want(t, time.Minute, down, "its own error")
		passes.want(t, time.Minute, nil, "behind one that fails and one that panics")
	})
}

// Run takes as many seconds as the cost. Two callers ask before any waits.
func TestNextWaiterAsksAtOnce(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, _ *weir.Limiter) {
		start := time.Now()
		var asked []time.Duration
		s := answers(func(r *weir.Request) (*weir.Result, error) {
			asked = append(asked, time.Since(start))
			time.Sleep(time.Duration(r.Cost) * time.Second)
			if time.Since(start) < time.Minute {
				return &weir.Result{ExpiresAt: start.Add(time.Minute)}, nil
			}
			return &weir.Result{State: weir.Allow}, nil
		})
		ctx, leave := context.WithCancel(t.Context())
		first := arrive(ctx, &s, weir.Request{Key: "a", Cost: 1})
		second := arrive(t.Context(), &s, weir.Request{Key: "a", Cost: 2})
		time.Sleep(10 * time.Second)
		leave()
		first.want(t, 10*time.Second, context.Canceled, "it waits for its instant")

		time.Sleep(time.Second)
		hurried, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		third := arrive(hurried, &s, weir.Request{Key: "a", Cost: 1})
		third.wantWaiting(t, "the second asks, and may be admitted")
		time.Sleep(time.Second)
		third.want(t, time.Second, context.DeadlineExceeded, "the second waits for an instant")
		time.Sleep(50 * time.Second)
		second.want(t, 62*time.Second, nil, "at its instant")
		assert.Equal(t, []time.Duration{0, 0, 10 * time.Second, time.Minute}, asked)
	})
}

// A caller who has looked at the limit on arrival, and then waited for its turn, goes by what it
// finds then, even if that is earlier.
func TestNextWaiterGoesByTheLatestDenial(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.TokenBucket(60)
		r := weir.Request{Key: "a", Limit: 60, Duration: time.Minute, Cost: 60}
		taken := weir.MustRun(t, s, &r)
		ctx, leave := context.WithCancel(t.Context())
		arrive(ctx, s, costing(r, 20))
		second := arrive(t.Context(), s, costing(r, 40))
		refunded := costing(r, 30)
		require.NoError(t, ops.Refund(t.Context(), s, &refunded, taken))
		leave()
		time.Sleep(10 * time.Second)
		second.want(t, 10*time.Second, nil, "40 tokens, of which 30 were given back")
	})
}

// The Limit may be 0 where a strategy has limits of its own.
func TestWaitersOnALimitOfTheStrategy(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := watchRuns(weir.KeyedFor("p", l.FixedWindow(), 1, time.Second))
		var all []*outcome
		for range 10 {
			all = append(all, arrive(t.Context(), s, weir.Request{Key: "a"}))
		}
		assert.Equal(t, 2, s.count(), "those who arrived first")
		ctx, leave := context.WithCancel(t.Context())
		arrive(ctx, s, weir.Request{Key: "a", Limit: 1}).wantWaiting(t, "another limit")
		arrive(ctx, s, weir.Request{Key: "a", Limit: 1, Cost: 2}).want(t, 0, weir.ErrLimit, "its cost is over that")
		leave()
		for i, o := range all {
			o.want(t, time.Duration(i)*time.Second, nil, "one in each second")
			time.Sleep(time.Second)
		}
	})
}

func TestDifferentLimitsDoNotWaitForEachOther(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		used := weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
		arrive(t.Context(), s, used)
		first := arrive(t.Context(), s, used)
		for what, tt := range map[string]struct {
			s weir.Strategy
			r weir.Request
		}{
			"another key":            {s, weir.Request{Key: "b", Limit: 1, Duration: time.Minute}},
			"another duration":       {s, weir.Request{Key: "a", Limit: 1, Duration: time.Hour}},
			"a higher limit":         {s, weir.Request{Key: "a", Limit: 9, Duration: time.Minute}},
			"another strategy":       {l.FixedWindow(), used},
			"a policy on it":         {weir.KeyedFor("p", s, 1, time.Minute), used},
			"another policy on it":   {weir.KeyedFor("q", s, 1, time.Minute), used},
			"one not to be compared": {uncomparable{l.TokenBucket(0), nil}, used},
		} {
			arrive(t.Context(), tt.s, tt.r).want(t, 0, nil, what)
		}
		first.wantWaiting(t, "its limit is used up")
		time.Sleep(time.Minute)
		first.want(t, time.Minute, nil, "at its instant")
	})
}

// watchedRuns notes the calls of Run. It is compared by value, and no Peeker.
type watchedRuns struct {
	weir.Strategy
	*runs
}

type runs struct {
	mu       sync.Mutex
	n        int            // guarded by mu, as are all
	admitted []string       // the Meta of each admitted request
	inside   map[string]int // calls of each key that are under way
	most     int            // of those, ever
}

func watchRuns(s weir.Strategy) watchedRuns {
	return watchedRuns{s, &runs{inside: make(map[string]int)}}
}

func (w watchedRuns) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
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
type waitFunc func(context.Context, weir.Strategy, *weir.Request) (time.Duration, error)

// crowd is a control that keeps no queue: all ask again at the same instant.
func crowd(ctx context.Context, s weir.Strategy, r *weir.Request) (time.Duration, error) {
	for {
		res, err := s.Run(ctx, r)
		if err != nil || res.Allowed() {
			return 0, err
		}
		if weir.SleepFor(ctx, time.Until(res.ExpiresAt), nil); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// inTurn has 100 callers arrive one after another, of whom one is admitted in each second.
func inTurn(t *testing.T, wait waitFunc, s watchedRuns, asked weir.Strategy) {
	var all errgroup.Group
	for _, meta := range numbers(100) {
		all.Go(func() error {
			_, err := wait(t.Context(), asked,
				&weir.Request{Key: "a", Limit: 1, Duration: time.Second, Meta: meta})
			return err
		})
		synctest.Wait()
	}
	require.NoError(t, all.Wait())
	require.Len(t, s.admitted, 100)
}

func TestWaitersAreAdmittedInOrderOfArrival(t *testing.T) {
	for name, made := range map[string]func(l *weir.Limiter) weir.Strategy{
		"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"SlidingLog":    func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(1) },
		"Counter":       func(l *weir.Limiter) weir.Strategy { return l.Counter() },
		"LeakyBucket":   func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(0) },
		"a queue of 3":  func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(3) },
	} {
		for composed, in := range map[string]func(weir.Strategy) weir.Strategy{
			"alone":  func(s weir.Strategy) weir.Strategy { return s },
			"Policy": func(s weir.Strategy) weir.Strategy { return weir.KeyedFor("p", s, 1, time.Second) },
		} {
			t.Run(name+"/"+composed, func(t *testing.T) {
				weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
					s := watchRuns(made(l))
					inTurn(t, weir.Wait, s, in(s))
					assert.Equal(t, numbers(100), s.admitted)
					assert.LessOrEqual(t, s.n, 200, "calls of Run")
				})
			})
		}
	}
}

func TestWaitersInOrderControlIsRejected(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
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
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
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
				r := &weir.Request{Key: strconv.Itoa(i % keys), Limit: limit, Duration: time.Second}
				switch _, err := wait(ctx, s, r); {
				case err == nil:
					done.Add(1)
				case assert.ErrorIs(t, err, context.Canceled):
					gaveUp.Add(1)
				}
			})
		}
		for i := range keys {
			r := &weir.Request{Key: strconv.Itoa(i), Limit: limit, Duration: time.Second, Cost: limit}
			weir.MustRun(t, s, r)
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
		assert.Equal(t, 1, overlap(t, weir.Wait))
	}
}

func TestOnlyTheFirstWaiterControlIsRejected(t *testing.T) {
	assert.Greater(t, overlap(t, crowd), 1)
}

// Callers with any cost and deadline arrive at any time: those that are admitted are in order, and
// nobody is late.
func TestWaitersInOrderWhateverTheirCostAndDeadline(t *testing.T) {
	for seed := range uint64(10) {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := watchRuns(l.SlidingLog())
			var all errgroup.Group
			var late atomic.Int64
			for i := range 200 {
				time.Sleep(time.Duration(random.IntN(200))*time.Millisecond + time.Microsecond)
				r := &weir.Request{Key: "a", Limit: 5, Duration: time.Second, Cost: random.Uint64N(7),
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
					waited, err := weir.Wait(ctx, s, r)
					assert.Equal(t, time.Since(start), waited)
					assert.LessOrEqual(t, waited, patience)
					switch {
					case r.Cost > r.Limit:
						assert.ErrorIs(t, err, weir.ErrLimit)
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
	weir.Strategy
	names []string
}

type functional func(*weir.Request) (*weir.Result, error)

func (f functional) Run(_ context.Context, r *weir.Request) (*weir.Result, error) { return f(r) }

type weighted struct {
	weir.Strategy
	weight float64
}

func TestWaitIDs(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	fixed, none := l.FixedWindow(), functional(nil)
	around := &weighted{fixed, 1}
	for what, tt := range map[string]struct {
		s, other weir.Strategy
		same     bool
	}{
		"a strategy":                    {fixed, fixed, true},
		"equal strategies":              {fixed, l.FixedWindow(), true},
		"two strategies":                {fixed, l.SlidingWindow(), false},
		"a struct around a strategy":    {weighted{fixed, 1}, weighted{fixed, 1}, true},
		"two structs around a strategy": {weighted{fixed, 1}, weighted{fixed, 2}, false},
		"a pointer":                     {around, around, true},
		"two pointers":                  {around, &weighted{fixed, 1}, false},
		"a policy":                      {weir.KeyedFor("p", fixed, 1, 2), weir.KeyedFor("p", fixed, 1, 2), true},
		"policies of two names":         {weir.KeyedFor("p", fixed, 1, 2), weir.KeyedFor("q", fixed, 1, 2), false},
		"policies of two limits":        {weir.KeyedFor("p", fixed, 1, 2), weir.KeyedFor("p", fixed, 2, 2), false},
		"policies of two durations":     {weir.KeyedFor("p", fixed, 1, 2), weir.KeyedFor("p", fixed, 1, 3), false},
		"a policy on a pointer":         {weir.KeyedFor("p", around, 1, 2), weir.KeyedFor("p", around, 1, 2), true},
		"a struct with a slice":         {uncomparable{fixed, nil}, uncomparable{fixed, nil}, false},
		"a struct around a pointer":     {weighted{around, 1}, weighted{around, 1}, true},
		"a function":                    {none, none, false},
		"a policy on a function":        {weir.KeyedFor("p", none, 1, 2), weir.KeyedFor("p", none, 1, 2), false},
		"a number that is not equal to any": {weighted{fixed, math.NaN()}, weighted{fixed, math.NaN()},
			false},
	} {
		one := weir.NewWaitID(weir.CounterOf(tt.s), &fivePerMinute)
		two := weir.NewWaitID(weir.CounterOf(tt.other), &fivePerMinute)
		assert.Equal(t, tt.same, one == two && one.Of != nil, what)
		assert.NotPanics(t, func() { _ = map[turns.ID]bool{one: true, two: true} }, what)
	}
}

// Callers whose strategy cannot be compared have no queue, and are all admitted.
func TestWaitersWithoutAQueue(t *testing.T) {
	for what, in := range map[string]func(s weir.Strategy) weir.Strategy{
		"a struct with a slice":             func(s weir.Strategy) weir.Strategy { return uncomparable{s, nil} },
		"a number that is not equal to any": func(s weir.Strategy) weir.Strategy { return weighted{s, math.NaN()} },
		"a function": func(s weir.Strategy) weir.Strategy {
			return functional(func(r *weir.Request) (*weir.Result, error) { return s.Run(context.Background(), r) })
		},
	} {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			s, r := in(l.SlidingLog()), weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
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
	r := weir.Request{Key: "a", Limit: 100_000, Duration: time.Second}
	for name, made := range map[string]func(l *weir.Limiter) weir.Strategy{
		"TokenBucket": func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(1) },
		"LeakyBucket": func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(0) },
	} {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			s, start := watchRuns(made(l)), time.Now()
			var all errgroup.Group
			for range 1000 {
				all.Go(func() error {
					_, err := weir.Wait(t.Context(), s, &r)
					return err
				})
			}
			require.NoError(t, all.Wait())
			assert.Equal(t, 999*gap, time.Since(start), name)
			assert.LessOrEqual(t, s.n, 3000, "calls of Run")
		})
	}
}

// ExpiresAt of a denial is an instant at which the same request is admitted, even if buckets of
// other lengths share the queue.
func TestDenialWithASharedQueue(t *testing.T) {
	for _, length := range []int{0, 1, 3, 7} {
		weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
			r := &weir.Request{Key: "id", Limit: 1, Duration: time.Second}
			long, short := l.LeakyBucket(10), l.LeakyBucket(length)
			var waiting errgroup.Group
			for range 8 {
				waiting.Go(func() error {
					_, err := long.Run(t.Context(), r)
					return err
				})
			}
			synctest.Wait()
			res := weir.MustPeek(t, short, r)
			require.False(t, res.Allowed())
			time.Sleep(time.Until(res.ExpiresAt) - time.Nanosecond)
			synctest.Wait()
			early := weir.MustPeek(t, short, r)
			assert.False(t, early.Allowed(), "length %d: just before ExpiresAt", length)
			assert.Equal(t, res.ExpiresAt, early.ExpiresAt)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			then := weir.MustPeek(t, short, r)
			assert.True(t, then.Allowed(), "length %d", length)
			require.NoError(t, waiting.Wait())
		})
	}
}

func TestWaitersForCenturies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		s, r := l.LeakyBucket(3),
			&weir.Request{Key: "id", Limit: math.MaxInt64, Cost: 1 << 62, Duration: time.Hour}
		weir.MustRun(t, s, r)
		var waiting errgroup.Group
		for range 3 {
			waiting.Go(func() error {
				_, err := s.Run(t.Context(), r)
				return err
			})
		}
		synctest.Wait()
		res := weir.MustPeek(t, s, r)
		assert.Greater(t, res.TotalRequests, uint64(1<<62))
		require.NoError(t, l.Close())
		require.ErrorIs(t, waiting.Wait(), weir.ErrClosed)
	})
}

// What waited can be given back until its own cost has leaked, however many wait behind it.
func TestRefundOfOneThatWaited(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		b, r := l.LeakyBucket(10), &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
		start, left := time.Now(), make(chan time.Duration, 6)
		backs := make(chan func(context.Context, uint64) error, 6)
		for range 6 {
			go func() {
				res, giveBack, err := ops.Admit(t.Context(), b, r)
				assert.NoError(t, err)
				assert.Equal(t, time.Now().Add(time.Second), res.ExpiresAt)
				left <- time.Since(start)
				backs <- giveBack
			}()
			synctest.Wait()
		}
		time.Sleep(2500 * time.Millisecond)
		for range 3 { // of which the third has half of its cost in the bucket
			require.NoError(t, (<-backs)(t.Context(), 1))
		}
		const s = time.Second
		for _, want := range []time.Duration{0, s, 2 * s, 5 * s / 2, 7 * s / 2, 9 * s / 2} {
			assert.Equal(t, want, <-left)
		}
	})
}

// The first in line looks at a clock that is set by hand every millisecond of real time.
func TestAWaiterSeesTheClockSetByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, clock := newLimiter(t, weir.Config{})
		b, r := l.LeakyBucket(1), &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
		weir.MustRun(t, b, r)
		left := make(chan error, 1)
		go func() {
			_, err := b.Run(t.Context(), r)
			left <- err
		}()
		time.Sleep(10 * time.Millisecond)
		assert.Empty(t, left)
		setMs(clock, 1000)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Len(t, left, 1)
		assert.NoError(t, <-left)
	})
}

// A panic of Config.Now does not leave its caller in the line, before all others for good.
func TestWaiterWhoseClockPanicsLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		l := weir.MustNew(t, weir.Config{Now: func() time.Time {
			if panics.Swap(false) {
				panic("no time")
			}
			return time.Now()
		}})
		b, r := l.LeakyBucket(10), &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
		weir.MustRun(t, b, r)
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			_, _ = b.Run(t.Context(), r)
		}()
		synctest.Wait()
		panics.Store(true)
		assert.Equal(t, "no time", <-caught)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := b.Run(ctx, r)
		assert.NoError(t, err)
	})
}

// passing is a caller that was admitted: as of an instant, and later.
type passing struct{ due, at time.Time }

// lateStrategy has whoever waits for it be woken late, and notes who is admitted. It can be
// compared.
type lateStrategy struct {
	weir.Strategy
	notes *lateNotes
}

type lateNotes struct {
	kind lineKind
	by   func() time.Duration // how late a timer is

	mu     sync.Mutex
	passed []passing // guarded by mu
}

func (s lateStrategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
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
func (s lateStrategy) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return ops.Peek(ctx, s.Strategy, r)
}

// lineKind is a kind of limit with a line: so many in a Duration.
type lineKind struct {
	name string
	n    uint64
	d    time.Duration
	of   func(t *testing.T, l *weir.Limiter, n uint64, d time.Duration) weir.Strategy
	// due returns as of when a caller from the line was admitted; nil: as of when it asked
	due func(res *weir.Result) time.Time
}

func (k lineKind) each() time.Duration { return k.d / time.Duration(k.n) }

// kindsOfLines returns the kinds with limits of n in d. LeakyBucket's own line has a test below.
func kindsOfLines(n uint64, d time.Duration) (kinds []lineKind) {
	ago := func(d time.Duration) func(res *weir.Result) time.Time {
		return func(res *weir.Result) time.Time { return res.ExpiresAt.Add(-d) }
	}
	add := func(name string, due func(res *weir.Result) time.Time, of func(t *testing.T,
		l *weir.Limiter) weir.Strategy) {
		kinds = append(kinds, lineKind{name, n, d,
			func(t *testing.T, l *weir.Limiter, _ uint64, _ time.Duration) weir.Strategy { return of(t, l) }, due})
	}
	each := (d-1)/time.Duration(n) + 1
	add("TokenBucket(1)", ago(each), func(_ *testing.T, l *weir.Limiter) weir.Strategy {
		return l.TokenBucket(1)
	})
	add("TokenBucket(5)", nil, func(_ *testing.T, l *weir.Limiter) weir.Strategy { return l.TokenBucket(5) })
	add("LeakyBucket(0)", ago(each), func(_ *testing.T, l *weir.Limiter) weir.Strategy {
		return l.LeakyBucket(0)
	})
	add("SlidingLog", ago(d), func(_ *testing.T, l *weir.Limiter) weir.Strategy { return l.SlidingLog() })
	add("SlidingWindow", nil, func(_ *testing.T, l *weir.Limiter) weir.Strategy { return l.SlidingWindow() })
	add("Counter", nil, func(_ *testing.T, l *weir.Limiter) weir.Strategy { return l.Counter() })
	add("List", nil, func(_ *testing.T, l *weir.Limiter) weir.Strategy { return l.List() })
	add("Tiers", nil, func(t *testing.T, l *weir.Limiter) weir.Strategy {
		return weir.MustTiers(t, l, weir.Tier{n, d}, weir.Tier{3 * n, 4 * d})
	})
	add("a Limit", ago(each), func(_ *testing.T, l *weir.Limiter) weir.Strategy {
		return l.TokenBucket(1).Limit(n, d)
	})
	return kinds
}

// line is a line of callers in a loop of waits, beside others that come and give up.
type line struct {
	callers, leavers int
	late             func() time.Duration
	around           func(lateStrategy) weir.Strategy // a control; nil: none
	seed             uint64
	during           time.Duration
}

// run returns who was admitted, in order.
func (in line) run(t *testing.T, kind lineKind) (passed []passing) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		random := rand.New(rand.NewPCG(in.seed, 0))
		late := lateStrategy{kind.of(t, l, kind.n, kind.d), &lateNotes{kind: kind, by: in.late}}
		var s weir.Strategy = late
		if in.around != nil {
			s = in.around(late)
		}
		until, cancel := context.WithTimeout(t.Context(), in.during)
		defer cancel()
		wait := func(ctx context.Context) error {
			_, err := weir.Wait(ctx, s, &weir.Request{Key: "a", Limit: kind.n, Duration: kind.d})
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
	exact := weir.MustNew(t, weir.Config{SweepEvery: time.Hour, Now: func() time.Time { return now }})
	s, r := kind.of(t, exact, kind.n, kind.d), weir.Request{Key: "a", Limit: kind.n, Duration: kind.d}
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
		if res := weir.MustRun(t, s, &r); !res.Allowed() {
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

func (s lossy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if turns.IsDue(ctx) && !turns.UseDue(ctx).Before(time.Now()) {
		time.Sleep(s.notes.by()) // of a bubble
	}
	return s.lateStrategy.Run(context.Background(), r)
}

// unbounded decides as of the instant that ctx has, however long ago that is.
type unbounded struct{ lateStrategy }

func (s unbounded) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	var due time.Time
	if turns.IsDue(ctx) {
		due = turns.UseDue(ctx)
		if !due.Before(time.Now()) {
			time.Sleep(s.notes.by()) // of a bubble
		}
	}
	res, at, err := weir.RunAsOf(s.Strategy.(*weir.SlidingLog), r, due)
	if err == nil && res.Allowed() {
		s.notes.passed = append(s.notes.passed, passing{at, time.Now()})
	}
	return res, err
}

func TestALineThatLosesLatenessIsRejected(t *testing.T) {
	kind := kindsOfLines(1000, time.Second)[0]
	in := line{callers: 40, late: func() time.Duration { return 0 }, during: time.Second}
	exact := in.run(t, kind)
	in.around = func(s lateStrategy) weir.Strategy { return lossy{s} }
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
	paused, in.around = false, func(s lateStrategy) weir.Strategy { return unbounded{s} }
	assert.Contains(t, broken(t, log, in.run(t, log)), "after it is due")
}

// In no span do more return from Wait than the limit admits in one that is longer by turns.MaxLate.
func TestWaitIsLateByABoundedTime(t *testing.T) {
	kind := kindsOfLines(1000, time.Second)[0]
	in := line{callers: 200, during: time.Second,
		late: func() time.Duration { return rand.N(150 * time.Millisecond) }}
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
func leavingRate(t *testing.T, cfg weir.Config, during time.Duration) (left []passing) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.MustNew(t, cfg)
		s, r := l.LeakyBucket(100), weir.Request{Key: "a", Limit: 1000, Duration: time.Second}
		var all sync.WaitGroup
		var mu sync.Mutex
		until := time.Now().Add(during)
		for range 50 {
			all.Go(func() {
				for time.Now().Before(until) {
					res := weir.MustRun(t, s, &r)
					mu.Lock()
					left = append(left, passing{res.ExpiresAt.Add(-time.Millisecond), weir.ReadNow(l)})
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
	for what, cfg := range map[string]weir.Config{
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
	for _, p := range leavingRate(t, weir.Config{Now: pauses}, time.Second) {
		at[p.at.Sub(start)]++
	}
	assert.InDelta(t, turns.MaxLate.Milliseconds(), at[800*time.Millisecond], 51, "who had come by then")
	assert.Greater(t, at[800*time.Millisecond], 40)
}
