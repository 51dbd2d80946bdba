package weir

import (
	"cmp"
	"container/list"
	"context"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/turns"
)

// LeakyBucket is the leaky bucket as a queue: requests wait their turn and leave at a fixed rate.
// Make one with [Limiter.LeakyBucket].
type LeakyBucket struct {
	stateStrategy[*queue]
	atOnce *LeakyBucket // the same, in which none waits
}

// LeakyBucket returns a Strategy whose Run waits: requests of one key leave one after another in
// order of arrival, Duration/Limit apart (rounded up to a nanosecond) and cost times that. Up to
// length of them wait; one that finds the queue full is denied, with the instant at which there is
// room. With a length of 0 or less none waits: a request is admitted at its turn or denied.
//
// Run returns the context's error when it ends first, and [ErrClosed] when the limiter is closed:
// the caller has then left the queue, those behind it move up, and nothing was counted. There is no
// goroutine per key. Where Config.Now is set, the first in the queue looks at it every millisecond
// of real time. When Limit changes, the cost that is in the bucket stays, and all of it leaves and
// leaks at the new rate, from a Run, a Charge or a Seed at it on.
//
// TotalRequests is the cost in the bucket: requests that wait, or left less than an interval ago.
// In any span of one Duration at most Limit+1 requests of cost 1 leave. A line keeps its rate:
// where a timer is late, requests leave as of the instants at which they were due, and Run returns
// up to 100 ms after these; what is later than that is lost. A request that waits holds
// 256 bytes, within the bound of [Limiter.SlidingLog].
//
// After a Reset the first in line may leave at once. An [OpReturn] of what left before moves
// the line up as if there had been no Reset.
//
// It is the leaky bucket as a queue (J. Turner, 1986). It differs from uber-go's ratelimit in
// honoring the context, in having no slack, and in denying.
func (l *Limiter) LeakyBucket(length int) *LeakyBucket {
	a := &queues{max(length, 0)}
	return (&LeakyBucket{stateStrategy: stateStrategy[*queue]{
		reader: reader{l: l, most: math.MaxInt64, preparer: a}, algorithm: a, table: &l.queues,
		forget: leaveNow,
	}}).described()
}

// queue is one caller's queue.
type queue struct {
	algorithm.LeakyBucket
	line list.List // of *waiter
}

func newQueue() *queue { return &queue{LeakyBucket: algorithm.LeakyBucket{Next: noInstant}} }

type waiter struct {
	cost  int64
	since int64         // it is due no sooner
	turn  chan struct{} // receives when it becomes the first in line, or when Next was moved
}

const waiterBytes = 256

// Expires returns when the queue is empty, if nobody waits.
func (q *queue) Expires(int64) int64 {
	if q.line.Len() > 0 {
		return maxInstant
	}
	return q.Next
}

// Bytes returns what those who wait take, and Growth what one more does.
func (q *queue) Bytes() int64 { return int64(q.line.Len()) * waiterBytes }

// Growth is described at Bytes.
func (q *queue) Growth(string) int64 { return waiterBytes }

// move makes b the bucket, and has the first in line look at the clock.
func (q *queue) move(b algorithm.LeakyBucket) {
	q.LeakyBucket = b
	q.wake()
}

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
	q.Waiting -= q.line.Remove(element).(*waiter).cost
}

// queues binds the arithmetic of an algorithm.LeakyBucket to a line of so many who wait.
type queues struct{ length int }

// Prepare sets p.Each to the ns between two requests of cost 1.
func (a *queues) Prepare(p params) (params, bool) {
	p.Each = algorithm.Spacing(p.Scale, p.Limit)
	return p, true
}

func (a *queues) Advance(*queue, params, int64) {}

func (a *queues) Decide(q *queue, p params, now int64) verdict {
	b := q.Spaced(p.Each, now)
	return b.Decide(p, now, q.line.Len() < a.length, a.freeAt(q, b, now))
}

func (a *queues) Full(q *queue, p params, now int64) int64 {
	return q.Spaced(p.Each, now).Empty(now)
}

// left returns any cost if a request is admitted at now, of any cost up to the limit, and else
// none.
func (a *queues) left(q *queue, _ params, now int64, _ bool) (left int64, unsaid bool) {
	if q.Free(now) || q.line.Len() < a.length {
		left = math.MaxInt64
	}
	return left, true
}

// freeAt returns when there is room in the line of q, whose bucket is b, or, where none may wait,
// when it is empty.
func (a *queues) freeAt(q *queue, b algorithm.LeakyBucket, now int64) int64 {
	if a.length == 0 {
		return b.Empty(now)
	}
	var cost int64
	for e, n := q.line.Front(), q.line.Len()-a.length; n > 0; e, n = e.Next(), n-1 {
		cost += e.Value.(*waiter).cost
	}
	return arith.Add(b.Start(now), b.Interval(cost))
}

func (a *queues) Admit(q *queue, p params, now int64, _ string) {
	q.move(q.Spaced(p.Each, now).Leave(now, p.Cost))
}

func (a *queues) Refund(q *queue, p params, now int64, t algorithm.Taken, _ string) {
	q.move(q.LeakyBucket.Refund(p, now, t.Expires))
}

func (a *queues) Raise(q *queue, p params, now, _, total int64, _ string) {
	q.move(q.Spaced(p.Each, now).Raise(now, total))
}

// leaveNow has the first in line leave at once; those behind it stay in line.
func leaveNow(h states.Locked[*queue]) {
	h.State.Next = min(h.State.Next, h.Now)
	h.State.wake()
}

// Run implements [Strategy]: it waits. It fails as [Limiter.CheckRate] does, and with ctx.
func (b *LeakyBucket) Run(ctx context.Context, r *Request) (*Result, error) {
	res, _, err := b.run(ctx, r)
	return res, err
}

// Do implements [Counter]. An [OpTake] waits.
func (b *LeakyBucket) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		if op.Verb != OpTake {
			b.do(ctx, op)
			continue
		}
		op.Err = catchUp(b, op)
		if op.Err != nil {
			continue
		}
		of := b
		if op.AtOnce {
			of = b.atOnce
		}
		res, at, err := of.run(ctx, &op.Request)
		op.Err = op.set(res, err)
		op.decided()
		if op.Full && err == nil {
			op.more, op.FullAt = at.rest, b.l.time(at.full)
		}
		if op.Keep && err == nil {
			op.receipt(at.Entry, b.l.clock.Instant(res.ExpiresAt))
			op.Receipt.N[receiptAt] = at.Now
		}
	}
}

// leaving is where a LeakyBucket has decided.
type leaving struct {
	states.Locked[*queue]
	rest
}

// run is Run, and returns where it decided.
func (b *LeakyBucket) run(
	ctx context.Context, r *Request,
) (res *Result, at leaving, err error) {
	p, err := b.parse(r)
	if err == nil {
		err = ctx.Err()
	}
	asOf := b.l.asOf(ctx)
	for err == nil {
		h, lockErr := b.lockAsOf(r.Key, p.Scale, !p.ExceedsLimit(), asOf)
		if lockErr != nil {
			return nil, at, b.l.fail(lockErr)
		}
		v := b.algorithm.Decide(h.State, p, h.Now)
		if h.Entry != nil && v.At != noInstant && h.State.Each != p.Each {
			h.State.move(h.State.Spaced(p.Each, h.Now))
		}
		switch {
		case !v.Allowed:
			at = b.leaving(h, p, v)
			h.Unlock(states.Denied)
			return b.l.result(v), at, nil
		case h.State.Free(h.Now):
			b.algorithm.Admit(h.State, p, h.Now, "")
			at = b.leaving(h, p, v)
			h.Unlock(states.Admitted)
			return b.l.result(v), at, nil
		case h.Reserve(""):
			return b.wait(ctx, h, b.join(h, p))
		case !h.MakeRoom():
			err = b.l.fail(ErrFull)
		}
	}
	return nil, at, err
}

// leaving returns where b has decided on p, in a queue that is locked.
func (b *LeakyBucket) leaving(h states.Locked[*queue], p params, v verdict) (at leaving) {
	at.Locked = h
	b.rest(&at.rest, &h, p, v)
	return at
}

// join appends a waiter to the line, and unlocks it.
func (b *LeakyBucket) join(h states.Locked[*queue], p params) *list.Element {
	q := h.State
	w := &waiter{min(p.Cost, math.MaxInt64-q.Waiting), h.Now, make(chan struct{}, 1)}
	element := q.line.PushBack(w)
	q.Waiting += w.cost
	if q.line.Len() == 1 {
		q.wake()
	}
	h.Unlock(states.Changed)
	return element
}

// wait returns when the turn of a waiter has come, or gives its place up.
func (b *LeakyBucket) wait(
	ctx context.Context, h states.Locked[*queue], element *list.Element,
) (res *Result, at leaving, err error) {
	q, w := h.State, element.Value.(*waiter)
	defer func() {
		if res == nil { // an error, or a panic of Config.Now
			b.quit(h, element)
		}
	}()
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case <-w.turn:
		case <-timer.C:
		case <-ctx.Done():
			return nil, at, ctx.Err()
		case <-b.l.janitor.stop:
			return nil, at, b.l.fail(ErrClosed)
		}
		now := b.l.clock.Read()
		h.Relock(noInstant)
		left := arith.Sub(q.Next, max(now, h.Now))
		if left <= 0 {
			res, at = b.leave(h, element, max(q.Next, w.since, arith.Sub(now, int64(turns.MaxLate))))
			return res, at, nil
		}
		h.LetGo()
		if b.l.clock.ByHand() {
			left = min(left, msec) // that clock may not go at the timer's pace
		}
		timer.Reset(time.Duration(left))
	}
}

// leave has the first waiter leave as of the instant at which it was due, and unlocks the line. So
// the next one is due an interval after that, however late this one was woken.
func (b *LeakyBucket) leave(
	h states.Locked[*queue], first *list.Element, due int64,
) (res *Result, at leaving) {
	q, w := h.State, first.Value.(*waiter)
	q.remove(first)
	q.move(q.Leave(due, w.cost))
	v := verdict{Allowed: true, Total: q.Level(due), At: q.Next}
	h.Now = max(h.Now, due)
	at = b.leaving(h, params{Each: q.Each}, v)
	res = b.l.result(v)
	h.Unlock(states.Admitted)
	return res, at
}

// quit takes a waiter out of the line. It may have been the first.
func (b *LeakyBucket) quit(h states.Locked[*queue], element *list.Element) {
	h.Relock(math.MinInt64)
	h.State.remove(element)
	h.State.wake()
	h.Unlock(states.Changed)
}

func writeQueue(e *encoder, q *queue) {
	e.Int(q.Next)
	e.Int(q.Each)
}

// readQueue reads a bucket: spaced, or as an older release has saved it, without its spacing.
func readQueue(d *decoder, spaced bool) error {
	id, scale, plan := d.key()
	saved := algorithm.LeakyBucket{Next: d.Any()}
	if spaced {
		saved.Each = d.Int(0, maxScale*msec)
	}
	now := d.l.clock.Read()
	d.counted = algorithm.Missing(saved.Next, now, cmp.Or(saved.Each, scale))
	d.Bad = d.Bad || plan != ""
	if d.Bad || !d.load || saved.Next <= now {
		return nil
	}
	b := d.l.LeakyBucket(0)
	if err := d.joinSeries(&b.reader); err != nil {
		return err
	}
	h, err := b.lock(id, scale, true)
	if err != nil {
		return err
	}
	h.State.move(h.State.Merge(saved, h.Now))
	h.Unlock(states.Changed)
	return nil
}

// described sets what b is.
func (b *LeakyBucket) described() *LeakyBucket {
	b.left = b.algorithm.(*queues).left
	b.describe(b, About{Name: "leaky bucket", Waits: true})
	of, a := *b, new(queues)
	of.preparer, of.algorithm, of.left = a, a, a.left
	b.atOnce = &of
	return b
}

// Limit returns the limit of n in d. Its Take and Wait have callers wait their turn; its Allow
// admits only who need not. It panics where [NewLimit] fails.
func (b *LeakyBucket) Limit(n uint64, d time.Duration) *Limit { return mustLimit(b, n, d) }

func (b *LeakyBucket) bind(m *Limit) (Counter, error) {
	of := *b
	of.keepAcrossDurations(m)
	err := of.bindTo(m, uint64(b.algorithm.(*queues).length))
	return of.described(), err
}
