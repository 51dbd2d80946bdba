package weir

import (
	"context"
	"math"
	"time"
)

// LeakyBucket is the leaky bucket as a queue: requests wait their turn and leave at a fixed rate. Make one with
// [Limiter.LeakyBucket].
type LeakyBucket struct {
	l     *Limiter
	queue int
}

// LeakyBucket returns a Strategy whose Run waits: requests of one key leave one after another in order of arrival,
// Duration/Limit apart (rounded up to a nanosecond) and cost times that. Up to queue of them wait; one that finds the
// queue full is denied, with the instant at which the next leaves it. With a queue of 0 or less nobody waits: a request
// is admitted at its turn or denied.
//
// Run returns the context's error when it ends first, and [ErrClosed] when the limiter is closed: the caller has then
// left the queue, those behind it move up, and nothing was counted. A caller that waits sleeps on a channel; the first
// in the queue, on a timer. There is no goroutine per key. Where Config.Now is set, the first looks at it every
// millisecond of real time. What has been queued keeps its interval when Limit changes.
//
// TotalRequests is the cost in the bucket: what left less than an interval ago, and what waits. In any span of one
// Duration at most Limit+1 requests of cost 1 leave.
//
// It is the leaky bucket as a meter's sibling, the queue of J. Turner's 1986 proposal; it differs from uber-go's
// ratelimit in honouring the context, in having no slack, and in denying.
func (l *Limiter) LeakyBucket(queue int) *LeakyBucket {
	l.queuesOnce.Do(func() {
		l.queues = newTable[queued](&l.room, func(q *queued) { q.next = math.MinInt64 })
		l.janitor.add(l.queues)
	})
	return &LeakyBucket{l: l, queue: max(queue, 0)}
}

// queued is one caller's queue. All but guard is guarded by guard.mu.
type queued struct {
	guard
	next  int64 // the instant at which the first in line may leave
	line  ring[*waiter]
	inter int64 // the sum of the intervals of those in line
}

type waiter struct {
	interval int64         // ns it keeps the next one waiting
	turn     chan struct{} // receives when it becomes the first in line, or when next was moved
}

// end returns from when on the queue is empty and its rate kept.
func (q *queued) end() int64 {
	if q.line.n > 0 {
		return maxInstant
	}
	return max(q.next, q.latest)
}

func (q *queued) over(period) int64                       { return q.overAt(q.end) }
func (q *queued) bury(_ period, _, now, grace int64) bool { return q.buryAt(q.end, now, grace) }

// leave lets a request go at now.
func (q *queued) leave(now, interval int64) {
	q.latest = now
	q.next = addSat(max(q.next, now), interval)
}

// call wakes the first in line.
func (q *queued) call() {
	if q.line.n == 0 {
		return
	}
	select {
	case (*q.line.at(0)).turn <- struct{}{}:
	default: // it has been called and has not looked yet
	}
}

// quit takes w out of the line.
func (q *queued) quit(w *waiter) {
	for i := range q.line.n {
		if *q.line.at(i) == w {
			q.line.remove(i)
			q.inter -= w.interval
			if i == 0 {
				q.call()
			}
			return
		}
	}
}

// level returns the cost in the bucket at now, in units of interval, rounded up.
func (q *queued) level(now, interval int64) uint64 {
	ns := addSat(max(q.next, now)-now, q.inter)
	if ns <= 0 {
		return 0
	}
	return uint64((ns-1)/interval) + 1
}

// empty returns when the bucket will be empty if nothing more comes.
func (q *queued) empty(now int64) int64 { return addSat(max(q.next, now), q.inter) }

// each returns the ns between two requests of cost 1.
func (d *demand) each() int64 { return (d.scale*msec-1)/max(d.limit, 1) + 1 }

// interval returns the ns that d keeps the next one waiting.
func (d *demand) interval() int64 { return d.each() * d.cost } // cost <= limit: at most limit ns more than a year

// Run implements [Strategy]: it waits. Its errors are those of [Limiter.CheckRate], and the context's.
func (b *LeakyBucket) Run(ctx context.Context, r *Request) (*Result, error) {
	var d demand
	err := b.l.sound(&d, r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := hold(b.l, b.l.queues, d.id, d.period(), !d.never())
	if err != nil {
		return nil, err
	}
	res, now := b.verdict(&d, h)
	h.shard.count(res.State)
	if res.State == Deny {
		if h.entry != nil {
			h.state.mu.Unlock()
		}
		return &res, nil
	}
	if now {
		h.state.leave(h.now, d.interval())
		b.l.queues.lower(h.place, h.state.end())
		h.state.mu.Unlock()
		return &res, nil
	}
	w := &waiter{d.interval(), make(chan struct{}, 1)}
	h.state.line.push(w)
	h.state.inter += w.interval
	if h.state.line.n == 1 {
		h.state.call()
	}
	h.state.mu.Unlock()
	return b.wait(ctx, &d, h, w)
}

// noQueue is the queue of a caller who has none. Nothing is written to it.
var noQueue = queued{next: math.MinInt64}

// verdict returns what d gets from the held queue, and whether its turn is now. It changes nothing.
func (b *LeakyBucket) verdict(d *demand, h held[queued]) (res Result, now bool) {
	q := &noQueue
	if h.entry != nil {
		q = &h.state
	}
	level := q.level(h.now, d.each())
	now = q.line.n == 0 && q.next <= h.now
	switch {
	case d.never():
		return Result{State: Deny, TotalRequests: level}, false
	case !now && q.line.n >= b.queue:
		return Result{Deny, level, b.l.clock.time(max(q.next, h.now))}, false
	}
	end := addSat(q.empty(h.now), d.interval())
	return Result{Allow, level + uint64(d.cost), b.l.clock.time(end)}, now
}

// wait returns when w's turn has come, or gives its place up.
func (b *LeakyBucket) wait(ctx context.Context, d *demand, h held[queued], w *waiter) (*Result, error) {
	q := &h.state
	var timer *time.Timer
	var ring <-chan time.Time
	for {
		select {
		case <-w.turn:
		case <-ring:
		case <-ctx.Done():
			return nil, b.quit(h, w, ctx.Err())
		case <-b.l.done:
			return nil, b.quit(h, w, b.l.fail(ErrClosed))
		}
		now := b.l.clock.read()
		q.mu.Lock()
		left := q.next - max(now, q.latest)
		if left <= 0 {
			now = max(now, q.latest)
			q.line.pop()
			q.inter -= w.interval
			q.leave(now, w.interval)
			res := Result{Allow, q.level(now, d.each()), b.l.clock.time(q.empty(now))}
			q.call()
			b.l.queues.lower(h.place, q.end())
			q.mu.Unlock()
			return &res, nil
		}
		q.mu.Unlock()
		if b.l.clock.now != nil {
			left = min(left, msec) // that clock may not go at the timer's pace
		}
		if timer == nil {
			timer = time.NewTimer(time.Duration(left))
			defer timer.Stop()
			ring = timer.C
		} else {
			timer.Reset(time.Duration(left))
		}
	}
}

// quit takes w out of the line, and out of Stats.
func (b *LeakyBucket) quit(h held[queued], w *waiter, err error) error {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	h.state.quit(w)
	b.l.queues.lower(h.place, h.state.end())
	h.shard.allowed.Add(^uint64(0)) // it was counted when it joined
	return err
}

// Peek implements [Peeker]: the Result as of joining the queue, and it does not wait.
func (b *LeakyBucket) Peek(_ context.Context, r *Request) (*Result, error) {
	var d demand
	err := b.l.sound(&d, r)
	if err != nil {
		return nil, err
	}
	h, err := hold(b.l, b.l.queues, d.id, d.period(), false)
	if err != nil {
		return nil, err
	}
	if h.entry != nil {
		defer h.state.mu.Unlock()
	}
	res, _ := b.verdict(&d, h)
	return &res, nil
}

// Refund implements [Refunder]: those that wait move up by what the request would have kept them waiting.
func (b *LeakyBucket) Refund(_ context.Context, r *Request, taken *Result) error {
	if !taken.Allowed() {
		return nil
	}
	return b.adjust(r, false, func(d *demand, next, now int64) int64 {
		// Of what r took, that which has leaked since is not given back twice.
		back := min(d.interval(), b.l.clock.instantOf(taken.ExpiresAt)-now)
		return max(min(next, now), addSat(next, -max(0, back)))
	})
}

// Reset implements [Resetter]: the first in line may leave at once.
func (b *LeakyBucket) Reset(_ context.Context, r *Request) error {
	return b.adjust(r, false, func(_ *demand, _, now int64) int64 { return now })
}

// Seed implements [Seeder].
func (b *LeakyBucket) Seed(_ context.Context, r *Request, counted *Result) error {
	if !b.l.clock.ahead(counted.ExpiresAt) {
		return b.l.sound(new(demand), r)
	}
	return b.adjust(r, true, func(d *demand, next, now int64) int64 {
		return max(next, addSat(now, mulSat(counted.TotalRequests, d.each())))
	})
}

// Charge implements [Charger].
func (b *LeakyBucket) Charge(_ context.Context, r *Request) error {
	return b.adjust(r, true, func(d *demand, next, now int64) int64 {
		return addSat(max(next, now), mulSat(uint64(d.cost), d.each()))
	})
}

// adjust moves the instant at which the first in line may leave, and has it look again.
func (b *LeakyBucket) adjust(r *Request, create bool, to func(d *demand, next, now int64) int64) error {
	var d demand
	err := b.l.sound(&d, r)
	if err != nil {
		return err
	}
	h, err := hold(b.l, b.l.queues, d.id, d.period(), create)
	if err != nil || h.entry == nil {
		return err
	}
	q := &h.state
	defer q.mu.Unlock()
	q.next = to(&d, q.next, h.now)
	b.l.queues.lower(h.place, q.end())
	q.call()
	return nil
}

// mulSat returns n*each, or the largest int64.
func mulSat(n uint64, each int64) int64 {
	if each > 0 && n > uint64(math.MaxInt64/each) {
		return math.MaxInt64
	}
	return int64(n) * each
}
