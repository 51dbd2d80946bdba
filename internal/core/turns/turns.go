// Package turns queues those who wait for one thing, in order of arrival. It does not know what
// they wait for.
package turns

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// queues are the process's, as what is waited for need not be of a limiter.
var queues = struct {
	sync.RWMutex                // most callers find no queue, and only read
	byID         map[any]*queue // guarded by the RWMutex; no queue in it is empty
}{byID: make(map[any]*queue)}

// queue is the callers that wait for one thing. The first asks for it until it leaves. A queue is
// guarded by the RWMutex of queues.
type queue struct {
	id       any
	callers  list.List // of *Caller, in order of arrival
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
	wake  chan struct{} // receives when it may be the first, or its deadline too near
}

// NoDeadline is after every instant that a try can be put off to.
var NoDeadline = time.UnixMilli(math.MaxInt64)

// Find reports whether callers wait for what id identifies, and the largest cost that joined them.
// id can be compared. It is nil for what cannot be identified, for which each waits alone.
func Find(id any) (queued bool, largest uint64) {
	queues.RLock()
	defer queues.RUnlock()
	if q := queues.byID[id]; q != nil {
		queued, largest = true, q.largest
	}
	return
}

// Signal wakes the first who waits for what id identifies, to ask again.
func Signal(id any) {
	queues.RLock()
	defer queues.RUnlock()
	if q := queues.byID[id]; q != nil {
		q.callers.Front().Value.(*Caller).signal()
	}
}

// Join appends c to the queue of id.
func (c *Caller) Join(id any) {
	c.wake = make(chan struct{}, 1)
	queues.Lock()
	defer queues.Unlock()
	q := queues.byID[id]
	if q == nil {
		q = &queue{id: id, earliest: NoDeadline}
		if id != nil {
			queues.byID[id] = q
		}
	}
	q.largest = max(q.largest, c.Cost)
	q.noteDeadline(c)
	c.queue, c.place = q, q.callers.PushBack(c)
}

// Leave removes c. The next one is woken if it is now the first, and the queue removed if there is
// none.
func (c *Caller) Leave() {
	queues.Lock()
	defer queues.Unlock()
	q := c.queue
	first := q.callers.Front() == c.place
	q.callers.Remove(c.place)
	switch next := q.callers.Front(); {
	case next == nil:
		delete(queues.byID, q.id)
	case first:
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
