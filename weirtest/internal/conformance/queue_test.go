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

// line is the reference of strategies that wait: callers stand in line, and whenever something happens each looks
// whether it is its turn.
type queueStrategy struct {
	queueFlaws
	places int

	mu    sync.Mutex
	lines map[slot]*queueState // guarded by mu
}

// queueFlaws break line, each in one way. All zero it is right.
type queueFlaws struct {
	hasty      bool          // lets pass one more in each Duration
	oneTurn    bool          // whatever the cost, it takes one turn
	slow       bool          // makes the first caller wait too
	lastFirst  bool          // the caller who came last passes first
	extra      int           // so many more may wait
	hesitates  bool          // denies only after a while
	early      time.Duration // denials name an instant that much earlier
	oneLine    bool          // all keys stand in one line
	losesPlace bool          // who gives up leaves a gap
	deaf       bool          // nobody can give up
	hopeful    bool          // Peek always finds a place
	returns    bool          // gives back also what is over
	keepsAll   bool          // gives nothing back
	chargesOne bool          // charges one, whatever the cost
	seedsLate  bool          // seeds what is over
	seedLowers bool          // seeds lower too
	resetsAll  bool          // resets every key
	takesTurn  bool          // a denied caller takes a turn
}

type queueState struct {
	waiting []*byte       // the callers, in order
	next    time.Time     // when the first may pass
	changed chan struct{} // closed when waiting or next change
}

func (s *queueStrategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	asked := *r
	if err := (&rolling{}).check(&asked); err != nil {
		return nil, err
	}
	limit := min(asked.Limit, math.MaxInt32)
	if max(asked.Cost, 1) > limit {
		return &weir.Result{}, nil
	}
	if s.hasty {
		limit++
	}
	each := (asked.Duration + time.Duration(limit) - 1) / time.Duration(limit)

	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(asked)
	if l.next.Before(time.Now()) && len(l.waiting) == 0 {
		l.next = time.Now()
		if s.slow {
			l.next = l.next.Add(each)
		}
	}
	if mustWait := len(l.waiting) > 0 || l.next.After(time.Now()); mustWait && len(l.waiting) >= s.places+s.extra {
		if s.hesitates {
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
			s.mu.Lock()
		}
		until := l.next.Add(-s.early)
		if s.takesTurn {
			l.next = l.next.Add(each)
		}
		return &weir.Result{TotalRequests: asked.Limit, ExpiresAt: until}, nil
	}
	if !s.oneTurn {
		each *= time.Duration(max(asked.Cost, 1))
	}
	return s.wait(ctx, l, each)
}

// wait stands in l until it is its turn. mu is held.
func (s *queueStrategy) wait(ctx context.Context, l *queueState, each time.Duration) (*weir.Result, error) {
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
		if s.deaf {
			done = nil
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-turn:
		case <-done:
		}
		s.mu.Lock()
		if ctx.Err() != nil && !s.deaf {
			if s.losesPlace {
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

// Peek looks whether there is a place.
func (s *queueStrategy) Peek(_ context.Context, r *weir.Request) (*weir.Result, error) {
	if err := (&rolling{}).check(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(*r)
	if mustWait := len(l.waiting) > 0 || l.next.After(time.Now()); mustWait && len(l.waiting) >= s.places && !s.hopeful {
		return &weir.Result{ExpiresAt: l.next}, nil
	}
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: l.next}, nil
}

func (s *queueStrategy) Refund(_ context.Context, r *weir.Request, taken *weir.Result) error {
	if err := (&rolling{}).check(r); err != nil || !taken.Allowed() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of(*r)
	back := r.Duration / time.Duration(r.Limit) * time.Duration(max(r.Cost, 1))
	if !s.returns {
		back = min(back, max(0, time.Until(taken.ExpiresAt)))
	}
	if !s.keepsAll {
		l.next = l.next.Add(-back)
	}
	l.wake()
	return nil
}

func (s *queueStrategy) Reset(_ context.Context, r *weir.Request) error {
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

func (s *queueStrategy) Charge(_ context.Context, r *weir.Request) error {
	return s.raise(r, func(now, next time.Time) time.Time {
		if s.chargesOne {
			return next.Add(r.Duration / time.Duration(r.Limit))
		}
		return next.Add(r.Duration / time.Duration(r.Limit) * time.Duration(max(r.Cost, 1)))
	})
}

func (s *queueStrategy) Seed(_ context.Context, r *weir.Request, counted *weir.Result) error {
	return s.raise(r, func(now, next time.Time) time.Time {
		to := now.Add(r.Duration / time.Duration(r.Limit) * time.Duration(counted.TotalRequests))
		if !counted.ExpiresAt.After(now) && !s.seedsLate || to.Before(next) && !s.seedLowers {
			return next
		}
		return to
	})
}

// raise moves the instant at which the next one may pass, unless r is bad.
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
	if s.oneLine {
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

// wake has everybody look again.
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
		{"one more passes in each Duration", "Pace", queueFlaws{hasty: true}},
		{"the first one waits too", "Pace", queueFlaws{slow: true}},
		{"a denied caller takes a turn", "Pace", queueFlaws{takesTurn: true}},
		{"cost is ignored", "Pace", queueFlaws{oneTurn: true}},
		{"the last one passes first", "Order", queueFlaws{lastFirst: true}},
		{"one too many waits", "Queue", queueFlaws{extra: 1}},
		{"one too few waits", "Queue", queueFlaws{extra: -1}},
		{"a denial takes a while", "Queue", queueFlaws{hesitates: true}},
		{"the retry instant is a nanosecond too early", "RetryInstant", queueFlaws{early: 1}},
		{"the retry instant is a nanosecond too late", "RetryInstant", queueFlaws{early: -1}},
		{"all keys stand in one line", "Keys", queueFlaws{oneLine: true}},
		{"who gives up leaves a gap", "GivingUp", queueFlaws{losesPlace: true}},
		{"nobody can give up", "GivingUp", queueFlaws{deaf: true}},
		{"Peek always finds a place", "Peek", queueFlaws{hopeful: true}},
		{"gives back a turn that is over", "Refund", queueFlaws{returns: true}},
		{"gives nothing back", "Refund", queueFlaws{keepsAll: true}},
		{"resets every key", "Reset", queueFlaws{resetsAll: true}},
		{"charges one, whatever the cost", "Charge", queueFlaws{chargesOne: true}},
		{"seeds what is over", "Seed", queueFlaws{seedsLate: true}},
		{"seeding lowers", "Seed", queueFlaws{seedLowers: true}},
	} {
		t.Run(broken.what, func(t *testing.T) {
			make, laws := flawedQueue(3, broken.queueFlaws)
			caught(t, broken.law, make, laws)
		})
	}
}
