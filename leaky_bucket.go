package weir

import (
	"container/list"
	"context"
	"math"
	"time"

	"github.com/weirgo/weir/internal/arith"
)

// LeakyBucket is the leaky bucket as a queue: requests wait their turn and leave at a fixed rate.
// Make one with [Limiter.LeakyBucket].
type LeakyBucket struct{ operations[queue] }

// LeakyBucket returns a Strategy whose Run waits: requests of one key leave one after another in
// order of arrival, Duration/Limit apart (rounded up to a nanosecond) and cost times that. Up to
// length of them wait; one that finds the queue full is denied, with the instant at which there is
// room. With a length of 0 or less none waits: a request is admitted at its turn or denied.
//
// Run returns the context's error when it ends first, and [ErrClosed] when the limiter is closed:
// the caller has then left the queue, those behind it move up, and nothing was counted. There is no
// goroutine per key. Where Config.Now is set, the first in the queue looks at it every millisecond
// of real time. A queued request keeps its interval when Limit changes.
//
// TotalRequests is the cost in the bucket: requests that wait, or left less than an interval ago.
// In any span of one Duration at most Limit+1 requests of cost 1 leave. A request that waits holds
// 256 bytes, within the bound of [Limiter.SlidingLog].
//
// It is the leaky bucket as a queue (J. Turner, 1986). It differs from uber-go's ratelimit in
// honoring the context, in having no slack, and in denying.
func (l *Limiter) LeakyBucket(length int) *LeakyBucket {
	st := &planned[queue]{l.queues(), ""}
	return &LeakyBucket{operations[queue]{l: l, algorithm: &queues{max(length, 0)}, store: st}}
}

// queues is the arithmetic of a LeakyBucket.
type queues struct{ length int }

// queue is one caller's queue.
type queue struct {
	next    int64     // the instant at which the first in line may leave; noInstant before the first hit
	line    list.List // of *waiter
	waiting int64     // ns: the sum of the intervals of those in line
}

type waiter struct {
	interval int64         // ns it keeps the next one waiting
	turn     chan struct{} // receives when it becomes the first in line, or when next was moved
}

const waiterBytes = 256

func (q *queue) end(stateKey) int64 {
	if q.line.Len() > 0 {
		return maxInstant
	}
	return q.next
}

func (q *queue) size() int64         { return int64(q.line.Len()) * waiterBytes }
func (q *queue) growth(string) int64 { return waiterBytes }

// start returns the instant at which the first in line, or a new one, may leave.
func (q *queue) start(now int64) int64 { return max(q.next, now) }

// free reports whether a request leaves at once.
func (q *queue) free(now int64) bool { return q.line.Len() == 0 && q.start(now) <= now }

// empty returns when the queue will be empty if nothing more comes.
func (q *queue) empty(now int64) int64 { return arith.Add(q.start(now), q.waiting) }

// move makes next the instant at which the first in line may leave, and wakes it.
func (q *queue) move(next int64) {
	q.next = next
	q.wake()
}

// wake has the first in line look at the clock.
func (q *queue) wake() {
	if first := q.line.Front(); first != nil {
		select {
		case first.Value.(*waiter).turn <- struct{}{}:
		default: // it was woken and has not looked yet
		}
	}
}

// remove takes a waiter out of the line.
func (q *queue) remove(element *list.Element) {
	q.waiting -= q.line.Remove(element).(*waiter).interval
}

// prepare sets p.each to the ns between two requests of cost 1.
func (a *queues) prepare(p params) (params, error) {
	p.each = arith.CeilDiv(p.scale*msec, max(p.limit, 1))
	return p, nil
}

func (a *queues) advance(*queue, params, int64) {}

func (a *queues) decide(q *queue, p params, now int64) verdict {
	level := arith.CeilDiv(max(0, arith.Sub(q.empty(now), now)), p.each)
	switch {
	case p.exceedsLimit():
		return verdict{state: Deny, total: level, at: noInstant}
	case q.free(now), q.line.Len() < a.length:
		return verdict{state: Allow, total: arith.Add(level, p.cost), at: arith.Add(q.empty(now), p.cost*p.each)}
	}
	return verdict{state: Deny, total: level, at: a.freeAt(q, now)}
}

// freeAt returns when there is room in the line or, where none may wait, when it is empty.
func (a *queues) freeAt(q *queue, now int64) int64 {
	if a.length == 0 {
		return q.empty(now)
	}
	at := q.start(now)
	for e, n := q.line.Front(), q.line.Len()-a.length; n > 0; e, n = e.Next(), n-1 {
		at = arith.Add(at, e.Value.(*waiter).interval)
	}
	return at
}

func (a *queues) admit(q *queue, p params, now, cost int64, _ string) {
	q.move(arith.Add(q.start(now), arith.Mul(uint64(cost), p.each)))
}

// refund moves those in line up, by no more than has yet to leak.
func (a *queues) refund(q *queue, p params, now, expires int64, _ string) {
	if back := min(p.cost*p.each, arith.Sub(expires, now)); back > 0 {
		q.move(max(min(q.next, now), arith.Sub(q.next, back)))
	}
}

func (a *queues) raise(q *queue, p params, now, _, total int64, _ string) {
	q.move(max(q.start(now), arith.Add(now, arith.Mul(uint64(total), p.each))))
}

// Reset implements [Resetter]: the first in line may leave at once.
func (b *LeakyBucket) Reset(_ context.Context, r *Request) error {
	_, h, err := b.find(r)
	if err != nil {
		return err
	}
	if h.kept {
		h.state.move(min(h.state.next, h.now))
	}
	b.store.unlock(h.handle, changed)
	return nil
}

// Run implements [Strategy]: it waits. It fails as [Limiter.CheckRate] does, and with ctx.
func (b *LeakyBucket) Run(ctx context.Context, r *Request) (*Result, error) {
	p, err := b.parse(r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	for {
		h, err := b.store.lock(r.Key, p.scale, !p.exceedsLimit())
		if err != nil {
			return nil, b.l.fail(err)
		}
		v := b.algorithm.decide(h.state, p, h.now)
		res := b.l.result(v)
		switch {
		case v.state == Deny:
			b.store.unlock(h.handle, denied)
			return res, nil
		case h.state.free(h.now):
			b.algorithm.admit(h.state, p, h.now, p.cost, "")
			b.store.unlock(h.handle, admitted)
			return res, nil
		case b.store.reserve(h.handle, ""):
			return b.wait(ctx, p, h, b.join(h, p))
		}
		if !b.store.makeRoom(h.handle) {
			return nil, b.l.fail(ErrFull)
		}
	}
}

// join appends a waiter to the line, and unlocks it.
func (b *LeakyBucket) join(h lockedState[queue], p params) *list.Element {
	q := h.state
	w := &waiter{min(p.cost*p.each, math.MaxInt64-q.waiting), make(chan struct{}, 1)} // at most 292 years
	element := q.line.PushBack(w)
	q.waiting += w.interval
	if q.line.Len() == 1 {
		q.wake()
	}
	b.store.unlock(h.handle, changed)
	return element
}

// wait returns when the turn of a waiter has come, or gives its place up.
func (b *LeakyBucket) wait(
	ctx context.Context, p params, h lockedState[queue], element *list.Element,
) (*Result, error) {
	q, w := h.state, element.Value.(*waiter)
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case <-w.turn:
		case <-timer.C:
		case <-ctx.Done():
			return nil, b.quit(h, element, ctx.Err())
		case <-b.l.janitor.stop:
			return nil, b.quit(h, element, b.l.fail(ErrClosed))
		}
		now := b.l.clock.read()
		h.entry.mu.Lock()
		h.now = max(now, h.entry.latest)
		left := arith.Sub(q.next, h.now)
		if left <= 0 {
			q.remove(element)
			q.move(arith.Add(q.start(h.now), w.interval))
			level := arith.CeilDiv(max(0, arith.Sub(q.empty(h.now), h.now)), p.each)
			res := b.l.result(verdict{state: Allow, total: level, at: q.empty(h.now)})
			b.store.unlock(h.handle, admitted)
			return res, nil
		}
		h.entry.mu.Unlock()
		if b.l.clock.now != nil {
			left = min(left, msec) // that clock may not go at the timer's pace
		}
		timer.Reset(max(time.Duration(left), b.l.clock.resolution)) // a coarse clock has not moved before
	}
}

// quit takes a waiter out of the line.
func (b *LeakyBucket) quit(h lockedState[queue], element *list.Element, err error) error {
	h.entry.mu.Lock()
	first := h.state.line.Front() == element
	h.state.remove(element)
	if first {
		h.state.wake()
	}
	h.now = h.entry.latest
	b.store.unlock(h.handle, changed)
	return err
}
