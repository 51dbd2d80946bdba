package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir"
)

// queueStrategy is the reference of strategies that wait: callers are queued, and each change wakes
// all of them to check whether they are first.
type queueStrategy struct {
	queueFlaws
	places int

	mu    sync.Mutex
	lines map[slot]*queueState // guarded by mu
}

// queueFlaws are defects of a queueStrategy, for tests that set one of them. The zero value has
// none.
type queueFlaws struct {
	admitsOneMore  bool          // admits one more in each Duration
	oneTurn        bool          // every cost takes one turn
	delaysFirst    bool          // the first caller waits too
	lastFirst      bool          // admits the newest caller first
	extra          int           // how many more callers may wait
	deniesLate     bool          // denies after a delay
	early          time.Duration // how much too early ExpiresAt of a denial is
	sharesQueue    bool          // all keys share a queue
	leavesGap      bool          // a caller that cancels still takes a turn
	ignoresContext bool          // waiting ignores the context
	peekAdmits     bool          // Peek ignores the length of the queue
	refundsExpired bool          // Refund returns turns that have passed
	refundsNothing bool          // Refund has no effect
	chargesOne     bool          // Charge ignores the cost
	seedsLate      bool          // Seed applies a count that has expired
	seedLowers     bool          // Seed may lower the count
	resetsAll      bool          // Reset applies to every key
	takesTurn      bool          // a denied caller takes a turn
}

type queueState struct {
	waiting []*byte       // the callers in order of arrival
	next    time.Time     // when the first caller may pass
	changed chan struct{} // closed when waiting or next change
}

func (s *queueStrategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	req := *r
	if err := (&rolling{}).check(&req); err != nil {
		return nil, err
	}
	limit := min(req.Limit, math.MaxInt32)
	if max(req.Cost, 1) > limit {
		return &weir.Result{}, nil
	}
	if s.admitsOneMore {
		limit++
	}
	each := (req.Duration + time.Duration(limit) - 1) / time.Duration(limit)

	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(req)
	if l.next.Before(time.Now()) && len(l.waiting) == 0 {
		l.next = time.Now()
		if s.delaysFirst {
			l.next = l.next.Add(each)
		}
	}
	if mustWait := len(l.waiting) > 0 || l.next.After(time.Now()); mustWait &&
		len(l.waiting) >= s.places+s.extra {
		if s.deniesLate {
			s.mu.Unlock()
			time.Sleep(time.Millisecond) // in a bubble
			s.mu.Lock()
		}
		until := l.next.Add(-s.early)
		if s.takesTurn {
			l.next = l.next.Add(each)
		}
		return &weir.Result{TotalRequests: req.Limit, ExpiresAt: until}, nil
	}
	if !s.oneTurn {
		each *= time.Duration(max(req.Cost, 1))
	}
	return s.wait(ctx, l, each)
}

// wait queues the caller in l until it is admitted. mu is held.
func (s *queueStrategy) wait(
	ctx context.Context, l *queueState, each time.Duration,
) (*weir.Result, error) {
	me := new(byte)
	if at := len(l.waiting); s.lastFirst {
		l.waiting = slices.Insert(l.waiting, 0, me)
	} else {
		l.waiting = slices.Insert(l.waiting, at, me)
	}
	l.wake()
	for {
		var turn <-chan time.Time
		if l.waiting[0] == me {
			if !time.Now().Before(l.next) {
				break
			}
			turn = time.After(time.Until(l.next))
		}
		changed, done := l.changed, ctx.Done()
		if s.ignoresContext {
			done = nil
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-turn:
		case <-done:
		}
		s.mu.Lock()
		if ctx.Err() != nil && !s.ignoresContext {
			if s.leavesGap {
				l.next = l.next.Add(each)
			}
			l.leave(me)
			return nil, ctx.Err()
		}
	}
	l.next = time.Now().Add(each)
	l.leave(me)
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: l.next}, nil
}

func (s *queueStrategy) About() *weir.About {
	return &weir.About{Of: s, Waits: true, Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn,
		weir.OpReset, weir.OpCatchUp, weir.OpCharge)}
}

func (s *queueStrategy) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		r := &op.Request
		switch op.Verb {
		case weir.OpTake:
			res, err := s.Run(ctx, r)
			set(op, res, err)
		case weir.OpPeek:
			res, err := s.peek(r)
			set(op, res, err)
		case weir.OpReturn:
			op.Err = s.refund(r, &op.Result)
		case weir.OpReset:
			op.Err = s.reset(r)
		case weir.OpCatchUp:
			op.Err = s.seed(r, op.Backlog.Counted)
		case weir.OpCharge:
			op.Err = s.charge(r)
		default:
			op.Err = op.Unsupported(s.About())
		}
	}
}

// peek admits if the queue has room.
func (s *queueStrategy) peek(r *weir.Request) (*weir.Result, error) {
	if err := (&rolling{}).check(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(*r)
	if mustWait := len(l.waiting) > 0 ||
		l.next.After(time.Now()); mustWait && len(l.waiting) >= s.places &&
		!s.peekAdmits {
		return &weir.Result{ExpiresAt: l.next}, nil
	}
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: l.next}, nil
}

func (s *queueStrategy) refund(r *weir.Request, taken *weir.Result) error {
	if err := (&rolling{}).check(r); err != nil || !taken.Allowed() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(*r)
	back := r.Duration / time.Duration(r.Limit) * time.Duration(max(r.Cost, 1))
	if !s.refundsExpired {
		back = min(back, max(0, time.Until(taken.ExpiresAt)))
	}
	if !s.refundsNothing {
		l.next = l.next.Add(-back)
	}
	l.wake()
	return nil
}

func (s *queueStrategy) reset(r *weir.Request) error {
	if err := (&rolling{}).check(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot, l := range s.lines {
		if slot.key == r.Key && slot.d == r.Duration || s.resetsAll {
			l.next = time.Time{}
			l.wake()
		}
	}
	return nil
}

func (s *queueStrategy) charge(r *weir.Request) error {
	return s.raise(r, func(now, next time.Time) time.Time {
		if s.chargesOne {
			return next.Add(r.Duration / time.Duration(r.Limit))
		}
		return next.Add(r.Duration / time.Duration(r.Limit) * time.Duration(max(r.Cost, 1)))
	})
}

func (s *queueStrategy) seed(r *weir.Request, counted *weir.Result) error {
	return s.raise(r, func(now, next time.Time) time.Time {
		to := now.Add(r.Duration / time.Duration(r.Limit) * time.Duration(counted.TotalRequests))
		if !counted.ExpiresAt.After(now) && !s.seedsLate || to.Before(next) && !s.seedLowers {
			return next
		}
		return to
	})
}

// raise sets the instant at which the next caller may pass to the result of to, unless r is
// invalid.
func (s *queueStrategy) raise(r *weir.Request, to func(now, next time.Time) time.Time) error {
	if err := (&rolling{}).check(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := s.of(*r), time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	l.next = to(now, l.next)
	l.wake()
	return nil
}

func (s *queueStrategy) of(r weir.Request) *queueState {
	slot := slot{r.Key, r.Duration}
	if s.sharesQueue {
		slot.key = ""
	}
	if s.lines[slot] == nil {
		s.lines[slot] = &queueState{changed: make(chan struct{})}
	}
	return s.lines[slot]
}

func (l *queueState) leave(who *byte) {
	at := slices.Index(l.waiting, who)
	l.waiting = slices.Delete(l.waiting, at, at+1)
	l.wake()
}

// wake makes all callers check their position.
func (l *queueState) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func flawedQueue(places int, f queueFlaws) (Factory, Laws) {
	return func(testing.TB, Clock) weir.Strategy {
		return &queueStrategy{queueFlaws: f, places: places, lines: make(map[slot]*queueState)}
	}, Laws{Waits: true, Queue: places}
}

func TestWaitingReferenceKeepsTheLaws(t *testing.T) {
	for _, places := range []int{0, 1, 3, 8} {
		t.Run(fmt.Sprintf("queue of %d", places), func(t *testing.T) {
			make, laws := flawedQueue(places, queueFlaws{})
			Test(t, newTestClock, make, laws)
		})
	}
}

func TestBrokenWaitingStrategiesAreCaughtByTheRightLaw(t *testing.T) {
	for _, broken := range []struct {
		what string
		law  string
		queueFlaws
	}{
		{"one more passes in each Duration", "Pace", queueFlaws{admitsOneMore: true}},
		{"the first caller waits too", "Pace", queueFlaws{delaysFirst: true}},
		{"a denied caller takes a turn", "Pace", queueFlaws{takesTurn: true}},
		{"cost is ignored", "Pace", queueFlaws{oneTurn: true}},
		{"the newest caller passes first", "Order", queueFlaws{lastFirst: true}},
		{"the queue holds one too many", "Queue", queueFlaws{extra: 1}},
		{"the queue holds one too few", "Queue", queueFlaws{extra: -1}},
		{"a denial is delayed", "Queue", queueFlaws{deniesLate: true}},
		{"the retry instant is a nanosecond too early", "RetryInstant", queueFlaws{early: 1}},
		{"the retry instant is a nanosecond too late", "RetryInstant", queueFlaws{early: -1}},
		{"all keys share a queue", "Keys", queueFlaws{sharesQueue: true}},
		{"a caller that cancels still takes a turn", "GivingUp", queueFlaws{leavesGap: true}},
		{"waiting ignores the context", "GivingUp", queueFlaws{ignoresContext: true}},
		{"Peek ignores the length of the queue", "Peek", queueFlaws{peekAdmits: true}},
		{"refunds a turn that has passed", "Refund", queueFlaws{refundsExpired: true}},
		{"refunds nothing", "Refund", queueFlaws{refundsNothing: true}},
		{"resets every key", "Reset", queueFlaws{resetsAll: true}},
		{"charges one for any cost", "Charge", queueFlaws{chargesOne: true}},
		{"seeds an expired count", "Seed", queueFlaws{seedsLate: true}},
		{"seeding lowers the count", "Seed", queueFlaws{seedLowers: true}},
	} {
		t.Run(broken.what, func(t *testing.T) {
			make, laws := flawedQueue(3, broken.queueFlaws)
			caught(t, broken.law, make, laws)
		})
	}
}
