package weir_test

import (
	"context"
	"errors"
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
