// Package turns queues those who wait for one thing, in order of arrival. It does not know what
// they wait for.
package turns

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ID identifies what callers wait for, by values that can be compared.
type ID struct {
	Of       any // nil: it cannot be identified, and each waits alone
	Key      string
	Limit    uint64
	Duration time.Duration
}

// queues are the process's, as what is waited for need not be of a limiter.
var queues = struct {
	sync.RWMutex               // most callers find no queue, and only read
	byID         map[ID]*queue // guarded by the RWMutex; no queue in it is empty
}{byID: make(map[ID]*queue)}

// waiting is how many callers are in queues, and how many lines there are besides.
var waiting atomic.Int64

// Any reports whether anybody waits for anything.
func Any() bool { return waiting.Load() > 0 }

// queue is the callers that wait for one thing. The first asks for it until it leaves. A queue is
// guarded by the RWMutex of queues.
type queue struct {
	id       ID
	callers  list.List // of *Caller, in order of arrival
	due      time.Time // when the last one that was the first was; see Caller.Due
	largest  uint64    // cost that has joined; nobody has said that it can never pass
	next     time.Time // when the first asks; the zero time: at once
	earliest time.Time // no deadline of a caller is before it
}

// Caller is one who waits, or may have to.
type Caller struct {
	Cost     uint64
	Deadline time.Time // or NoDeadline

	// set by Join
	queue *queue
	place *list.Element
	since time.Time
	wake  chan struct{} // receives when it may be the first, or its deadline too near
}

// NoDeadline is after every instant that a try can be put off to.
var NoDeadline = time.UnixMilli(math.MaxInt64)

// Find reports whether callers wait for what id identifies, and the largest cost that joined them.
func Find(id ID) (queued bool, largest uint64) {
	queues.RLock()
	defer queues.RUnlock()
	if q := queues.byID[id]; q != nil {
		queued, largest = true, q.largest
	}
	return
}

// Signal wakes the first who waits for what id identifies, to ask again.
func Signal(id ID) {
	queues.RLock()
	defer queues.RUnlock()
	if q := queues.byID[id]; q != nil {
		q.callers.Front().Value.(*Caller).signal()
	}
}

// Join appends c to the queue of id.
func (c *Caller) Join(id ID) {
	c.wake, c.since = make(chan struct{}, 1), time.Now()
	queues.Lock()
	defer queues.Unlock()
	waiting.Add(1)
	q := queues.byID[id]
	if q == nil {
		q = &queue{id: id, earliest: NoDeadline}
		if id.Of != nil {
			queues.byID[id] = q
		}
	}
	q.largest = max(q.largest, c.Cost)
	q.noteDeadline(c)
	c.queue, c.place = q, q.callers.PushBack(c)
}

// Leave removes c, whose turn was due at an instant; the zero time: it has not asked as the first.
// The next one is woken if it is now the first, and the queue removed if there is none.
func (c *Caller) Leave(due time.Time) {
	queues.Lock()
	defer queues.Unlock()
	waiting.Add(-1)
	q := c.queue
	first := q.callers.Front() == c.place
	q.callers.Remove(c.place)
	switch next := q.callers.Front(); {
	case next == nil:
		delete(queues.byID, q.id)
	case first:
		q.due = later(q.due, due)
		q.next = time.Time{}
		next.Value.(*Caller).signal()
	}
}

// Await returns when c is the first, and whether it has waited for that: what it found before is
// out of date then. It fails with ctx, and if the deadline is before the next try of the one that
// is.
func (c *Caller) Await(ctx context.Context) (waited bool, err error) {
	for {
		first, next := c.state()
		if first {
			return waited, nil
		}
		if err := c.Check(next); err != nil {
			return waited, err
		}
		select {
		case <-c.wake:
			waited = true
		case <-ctx.Done():
			return waited, ctx.Err()
		}
	}
}

func (c *Caller) state() (first bool, next time.Time) {
	queues.RLock()
	defer queues.RUnlock()
	return c.queue.callers.Front() == c.place, c.queue.next
}

// Due returns the instant as of which c, now the first, is to ask: when the one before it was due,
// or when it joined, if that is later. So the line keeps its rate, however late it is woken.
func (c *Caller) Due() time.Time {
	queues.RLock()
	defer queues.RUnlock()
	return later(c.queue.due, c.since)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Check fails if the deadline is before the next try, of c or of the first in the queue.
func (c *Caller) Check(next time.Time) error {
	if c.Deadline.Before(next) {
		return fmt.Errorf("weir: wait of %v: %w", time.Until(next), context.DeadlineExceeded)
	}
	return nil
}

// AsksAt notes that c, the first, asks after left, at next, and wakes the callers whose deadline is
// before that. It looks at the others only if there may be such a one, and if left is a microsecond
// for each of them at least: else their own deadlines wake them as soon, and a queue would pass
// fewer the longer it is.
func (c *Caller) AsksAt(next time.Time, left time.Duration) {
	queues.Lock()
	defer queues.Unlock()
	q := c.queue
	q.next = next
	if !q.earliest.Before(next) || left < time.Duration(q.callers.Len())*time.Microsecond {
		return
	}
	q.earliest = NoDeadline
	for e := q.callers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Caller); c.Deadline.Before(next) {
			c.signal()
		} else {
			q.noteDeadline(c)
		}
	}
}

func (q *queue) noteDeadline(c *Caller) {
	if c.Deadline.Before(q.earliest) {
		q.earliest = c.Deadline
	}
}

// Woken returns a channel that receives after a Signal.
func (c *Caller) Woken() <-chan struct{} { return c.wake }

// signal wakes c, to look whether it is the first and its deadline still far enough.
func (c *Caller) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // it has yet to look
	}
}

// Queues returns how many queues there are.
func Queues() int {
	queues.RLock()
	defer queues.RUnlock()
	return len(queues.byID)
}
