package engine

import (
	"container/list"
	"context"
	"errors"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/turns"
)

// ErrClosed is weir.ErrClosed: the limiter was closed.
var ErrClosed = errors.New("weir: limiter is closed")

// Queue is one caller's leaky bucket, and the requests that wait their turn to leave it.
type Queue struct {
	algorithm.LeakyBucket
	line list.List // of *waiter
}

func newQueue(states.Key) *Queue {
	return &Queue{LeakyBucket: algorithm.LeakyBucket{Next: algorithm.Never}}
}

type waiter struct {
	cost  int64
	since int64         // it is due no sooner
	turn  chan struct{} // receives when it becomes the first in line, or when Next was moved
}

const waiterBytes = 256

// Expires returns when the queue is empty, if no request waits.
func (q *Queue) Expires(int64) int64 {
	if q.line.Len() > 0 {
		return algorithm.End
	}
	return q.Next
}

// Bytes returns the bytes of all waiters, and Growth those of one.
func (q *Queue) Bytes() int64 { return int64(q.line.Len()) * waiterBytes }

// Growth is described at Bytes.
func (q *Queue) Growth(string) int64 { return waiterBytes }

// move makes b the bucket, and has the first in line look at the clock.
func (q *Queue) move(b algorithm.LeakyBucket) {
	q.LeakyBucket = b
	q.wake()
}

func (q *Queue) wake() {
	if first := q.line.Front(); first != nil {
		select {
		case first.Value.(*waiter).turn <- struct{}{}:
		default: // it was woken and has not looked yet
		}
	}
}

// remove takes a waiter out of the line.
func (q *Queue) remove(element *list.Element) {
	q.Waiting -= q.line.Remove(element).(*waiter).cost
}

// leaveNow has the first in line leave at once; those behind it stay in line.
func leaveNow(h states.Locked[*Queue]) {
	h.State.Next = min(h.State.Next, h.Now)
	h.State.wake()
}

// Line binds the arithmetic of an algorithm.LeakyBucket to a line of at most Length waiters.
type Line struct{ Length int }

// Prepare sets p.Each to the ns between two requests of cost 1.
func (a *Line) Prepare(p Params) (Params, bool) {
	p.Each = algorithm.Spacing(p.Scale, p.Limit)
	return p, true
}

// Advance implements [StateAlgorithm].
func (a *Line) Advance(*Queue, Params, int64) {}

// Decide implements [StateAlgorithm].
func (a *Line) Decide(q *Queue, p Params, now int64) Verdict {
	b := q.Spaced(p.Each, now)
	return b.Decide(p, now, q.line.Len() < a.Length, a.freeAt(q, b, now))
}

// Full implements [StateAlgorithm].
func (a *Line) Full(q *Queue, p Params, now int64) int64 { return q.Spaced(p.Each, now).Empty(now) }

// Left returns any cost if a request is admitted at now, of any cost up to the limit, and else
// none.
func (a *Line) Left(q *Queue, _ Params, now int64, _ bool) (left int64, unsaid bool) {
	if q.Free(now) || q.line.Len() < a.Length {
		left = math.MaxInt64
	}
	return left, true
}

// freeAt returns when there is room in the line of q, whose bucket is b, or, where none may wait,
// when it is empty.
func (a *Line) freeAt(q *Queue, b algorithm.LeakyBucket, now int64) int64 {
	if a.Length == 0 {
		return b.Empty(now)
	}
	var cost int64
	for e, n := q.line.Front(), q.line.Len()-a.Length; n > 0; e, n = e.Next(), n-1 {
		cost += e.Value.(*waiter).cost
	}
	return arith.Add(b.Start(now), b.Interval(cost))
}

// Admit implements [StateAlgorithm].
func (a *Line) Admit(q *Queue, p Params, now int64, _ string) {
	q.move(q.Spaced(p.Each, now).Leave(now, p.Cost))
}

// Refund implements [StateAlgorithm].
func (a *Line) Refund(q *Queue, p Params, now int64, t algorithm.Taken, _ string) {
	q.move(q.LeakyBucket.Refund(p, now, t.Expires))
}

// Raise implements [StateAlgorithm].
func (a *Line) Raise(q *Queue, p Params, now, _, total int64, _ string) {
	q.move(q.Spaced(p.Each, now).Raise(now, total))
}

// WithLine returns the same store with a line of so many waiters.
func WithLine(s States[*Queue], length int) States[*Queue] {
	a := &Line{length}
	s.Algorithm, s.Left = a, a.Left
	return s
}

// Queues decides on queues, and has requests wait in them.
type Queues struct {
	*States[*Queue]
	Clock   *clock.Clock
	Stopped <-chan struct{} // is closed when waiters are to leave
}

// Pass returns the verdict on a call, and counts its cost when it leaves the queue. It waits for
// that. It fails with ctx, with room.ErrFull, and with ErrClosed.
func (s *Queues) Pass(ctx context.Context, id string, c *Call) (v Verdict, now int64, err error) {
	for p := c.Params; ; {
		h, err := s.Lock(id, p.Scale, !p.ExceedsLimit(), c.AsOf)
		if err != nil {
			return v, 0, err
		}
		v = s.Algorithm.Decide(h.State, p, h.Now)
		if h.Entry != nil && v.At != algorithm.Never && h.State.Each != p.Each {
			h.State.move(h.State.Spaced(p.Each, h.Now))
		}
		switch {
		case !v.Allowed:
			s.decided(c, &h, v)
			h.Unlock(states.Denied)
			return v, h.Now, nil
		case h.State.Free(h.Now):
			s.Algorithm.Admit(h.State, p, h.Now, "")
			s.decided(c, &h, v)
			h.Unlock(states.Admitted)
			return v, h.Now, nil
		case h.Reserve(""):
			return s.wait(ctx, h, c)
		case !h.MakeRoom():
			return v, 0, room.ErrFull
		}
	}
}

// join appends a waiter to the line, and unlocks it.
func (s *Queues) join(h states.Locked[*Queue], cost int64) *list.Element {
	q := h.State
	w := &waiter{min(cost, math.MaxInt64-q.Waiting), h.Now, make(chan struct{}, 1)}
	element := q.line.PushBack(w)
	q.Waiting += w.cost
	if q.line.Len() == 1 {
		q.wake()
	}
	h.Unlock(states.Changed)
	return element
}

// wait joins the line, and returns when its turn has come, or gives its place up.
func (s *Queues) wait(
	ctx context.Context, h states.Locked[*Queue], c *Call,
) (v Verdict, now int64, err error) {
	element, left := s.join(h, c.Cost), false
	q, w := h.State, element.Value.(*waiter)
	defer func() {
		if !left { // an error, or a panic of Config.Now
			s.quit(h, element)
		}
	}()
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case <-w.turn:
		case <-timer.C:
		case <-ctx.Done():
			return v, 0, ctx.Err()
		case <-s.Stopped:
			return v, 0, ErrClosed
		}
		now = s.Clock.Read()
		h.Relock(algorithm.Never)
		rest := arith.Sub(q.Next, max(now, h.Now))
		if rest <= 0 {
			left = true
			due := max(q.Next, w.since, arith.Sub(now, int64(turns.MaxLate)))
			v, now = s.leave(h, element, due, c)
			return v, now, nil
		}
		h.LetGo()
		if s.Clock.ByHand() {
			rest = min(rest, int64(time.Millisecond)) // that clock may not go at the timer's pace
		}
		timer.Reset(time.Duration(rest))
	}
}

// leave has the first waiter leave as of the instant at which it was due, and unlocks the line. So
// the next one is due an interval after that, however late this one was woken.
func (s *Queues) leave(
	h states.Locked[*Queue], first *list.Element, due int64, c *Call,
) (v Verdict, now int64) {
	q, w := h.State, first.Value.(*waiter)
	q.remove(first)
	q.move(q.Leave(due, w.cost))
	v = Verdict{Allowed: true, Total: q.Level(due), At: q.Next}
	h.Now = max(h.Now, due)
	c.Each = q.Each // a call at another limit may have changed it
	s.decided(c, &h, v)
	h.Unlock(states.Admitted)
	return v, h.Now
}

// quit takes a waiter out of the line. It may have been the first.
func (s *Queues) quit(h states.Locked[*Queue], element *list.Element) {
	h.Relock(math.MinInt64)
	h.State.remove(element)
	h.State.wake()
	h.Unlock(states.Changed)
}
