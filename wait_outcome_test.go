package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// arrive has a caller wait in the background, and returns its result.
func arrive(ctx context.Context, s Strategy, r Request) *outcome {
	o := &outcome{}
	go func() {
		o.waited, o.err = Wait(ctx, s, &r)
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

var fivePerMinute = Request{Key: "a", Limit: 5, Duration: time.Minute}

// costing returns r with a cost.
func costing(r Request, cost uint64) Request {
	r.Cost = cost
	return r
}

func TestWaitersLeaveTheQueueWithTheirContext(t *testing.T) {
	Waiting(t, func(t *testing.T, l *Limiter) {
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
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := watchRuns(l.SlidingLog())
		one := Request{Key: "a", Limit: 1, Duration: time.Minute}
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
	Waiting(t, func(t *testing.T, l *Limiter) {
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
		of    func(l *Limiter) Strategy
		least uint64 // cost that can never pass, where the Limit is 5
	}{
		"a cost over the limit": {func(l *Limiter) Strategy { return l.FixedWindow() }, 6},
		"a cost over the burst": {func(l *Limiter) Strategy { return l.TokenBucket(3) }, 4},
		"a cost over a policy": {func(l *Limiter) Strategy {
			return keyedFor("p", l.FixedWindow(), 2, time.Minute)
		}, 3},
		"a cost over a tier": {func(l *Limiter) Strategy {
			return MustTiers(t, l, Tier{2, time.Second}, Tier{2, time.Minute})
		}, 3},
		"a cost over the limit, where there is no Peeker": {func(l *Limiter) Strategy {
			return watchRuns(l.FixedWindow())
		}, 6},
	} {
		Waiting(t, func(t *testing.T, l *Limiter) {
			s := tt.of(l)
			most := tt.least - 1
			arrive(t.Context(), s, costing(fivePerMinute, most)).want(t, 0, nil, what)
			first := arrive(t.Context(), s, fivePerMinute)
			first.wantWaiting(t, what)
			arrive(t.Context(), s, costing(fivePerMinute, tt.least)).want(t, 0, ErrLimit, what)
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
	for what, in := range map[string]func(s Strategy) Strategy{
		"a bucket that is no Peeker": func(s Strategy) Strategy { return watchRuns(s) },
		"a policy on it": func(s Strategy) Strategy {
			return keyedFor("p", watchRuns(s), 5, time.Minute)
		},
	} {
		Waiting(t, func(t *testing.T, l *Limiter) {
			s := in(l.TokenBucket(3))
			arrive(t.Context(), s, costing(fivePerMinute, 3))
			first := arrive(t.Context(), s, fivePerMinute)
			impossible := arrive(t.Context(), s, costing(fivePerMinute, 4))
			behind := arrive(t.Context(), s, fivePerMinute)
			impossible.wantWaiting(t, what)
			time.Sleep(12 * time.Second)
			first.want(t, 12*time.Second, nil, what)
			impossible.want(t, 12*time.Second, ErrLimit, what)
			time.Sleep(12 * time.Second)
			behind.want(t, 24*time.Second, nil, what)
		})
	}
}

// peeked notes the costs of peeks, which fail with an error if there is one.
type peeked struct {
	*SlidingLog
	says  *About
	costs []uint64
	err   error
}

func (p *peeked) About() *About { return p.says }

func (p *peeked) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		if op.Verb == OpPeek {
			p.costs = append(p.costs, op.Cost)
			op.Err = p.err
		}
		if op.Verb != OpPeek || p.err == nil {
			_ = Do(ctx, p.SlidingLog, op)
		}
	}
}

// Peek is for a cost larger than those that have joined the queue, and Run for the first only.
func TestWaitersPeekAtLargerCostsOnly(t *testing.T) {
	Waiting(t, func(t *testing.T, l *Limiter) {
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
type answers func(r *Request) (*Result, error)

func (f *answers) Run(_ context.Context, r *Request) (*Result, error) { return (*f)(r) }

func TestNextWaiterTakesOverFromOneThatFails(t *testing.T) {
	down := errors.New("down")
	Waiting(t, func(t *testing.T, _ *Limiter) {
		opens := time.Now().Add(time.Minute)
		s := answers(func(r *Request) (*Result, error) {
			switch {
			case time.Now().Before(opens):
				return &Result{ExpiresAt: opens}, nil
			case r.Meta == "fails":
				return nil, down
			case r.Meta == "panics":
				panic(down)
			}
			return &Result{State: Allow}, nil
		})
		fails := arrive(t.Context(), &s, Request{Key: "a", Meta: "fails"})
		caught := make(chan any)
		go func() {
			defer func() { caught <- recover() }()
			_, _ = Wait(t.Context(), &s, &Request{Key: "a", Meta: "panics"})
		}()
		synctest.Wait()
		passes := arrive(t.Context(), &s, Request{Key: "a"})
		assert.Equal(t, down, <-caught)
		fails.want(t, time.Minute, down, "its own error")
		passes.want(t, time.Minute, nil, "behind one that fails and one that panics")
	})
}

// Run takes as many seconds as the cost. Two callers ask before any waits.
func TestNextWaiterAsksAtOnce(t *testing.T) {
	Waiting(t, func(t *testing.T, _ *Limiter) {
		start := time.Now()
		var asked []time.Duration
		s := answers(func(r *Request) (*Result, error) {
			asked = append(asked, time.Since(start))
			time.Sleep(time.Duration(r.Cost) * time.Second)
			if time.Since(start) < time.Minute {
				return &Result{ExpiresAt: start.Add(time.Minute)}, nil
			}
			return &Result{State: Allow}, nil
		})
		ctx, leave := context.WithCancel(t.Context())
		first := arrive(ctx, &s, Request{Key: "a", Cost: 1})
		second := arrive(t.Context(), &s, Request{Key: "a", Cost: 2})
		time.Sleep(10 * time.Second)
		leave()
		first.want(t, 10*time.Second, context.Canceled, "it waits for its instant")

		time.Sleep(time.Second)
		hurried, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		third := arrive(hurried, &s, Request{Key: "a", Cost: 1})
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
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := l.TokenBucket(60)
		r := Request{Key: "a", Limit: 60, Duration: time.Minute, Cost: 60}
		taken := MustRun(t, s, &r)
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
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := watchRuns(keyedFor("p", l.FixedWindow(), 1, time.Second))
		var all []*outcome
		for range 10 {
			all = append(all, arrive(t.Context(), s, Request{Key: "a"}))
		}
		assert.Equal(t, 2, s.count(), "those who arrived first")
		ctx, leave := context.WithCancel(t.Context())
		arrive(ctx, s, Request{Key: "a", Limit: 1}).wantWaiting(t, "another limit")
		arrive(ctx, s, Request{Key: "a", Limit: 1, Cost: 2}).want(t, 0, ErrLimit, "its cost is over that")
		leave()
		for i, o := range all {
			o.want(t, time.Duration(i)*time.Second, nil, "one in each second")
			time.Sleep(time.Second)
		}
	})
}

func TestDifferentLimitsDoNotWaitForEachOther(t *testing.T) {
	Waiting(t, func(t *testing.T, l *Limiter) {
		s := l.SlidingLog()
		used := Request{Key: "a", Limit: 1, Duration: time.Minute}
		arrive(t.Context(), s, used)
		first := arrive(t.Context(), s, used)
		for what, tt := range map[string]struct {
			s Strategy
			r Request
		}{
			"another key":            {s, Request{Key: "b", Limit: 1, Duration: time.Minute}},
			"another duration":       {s, Request{Key: "a", Limit: 1, Duration: time.Hour}},
			"a higher limit":         {s, Request{Key: "a", Limit: 9, Duration: time.Minute}},
			"another strategy":       {l.FixedWindow(), used},
			"a policy on it":         {keyedFor("p", s, 1, time.Minute), used},
			"another policy on it":   {keyedFor("q", s, 1, time.Minute), used},
			"one not to be compared": {uncomparable{l.TokenBucket(0), nil}, used},
		} {
			arrive(t.Context(), tt.s, tt.r).want(t, 0, nil, what)
		}
		first.wantWaiting(t, "its limit is used up")
		time.Sleep(time.Minute)
		first.want(t, time.Minute, nil, "at its instant")
	})
}
