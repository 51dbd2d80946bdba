package weir

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// waitQueues holds the queues of Wait. They are the process's, as a Strategy need not be of a
// Limiter.
var waitQueues = struct {
	sync.RWMutex                       // most callers find no queue, and only read
	byID         map[waitID]*waitQueue // guarded by the RWMutex; no queue in it is empty
}{byID: make(map[waitID]*waitQueue)}

// waitQueue is the callers that wait for one limit. The first asks the strategy until it leaves. A
// queue is guarded by the RWMutex of waitQueues.
type waitQueue struct {
	id       waitID
	callers  list.List // of *waitCaller, in order of arrival
	largest  uint64    // cost that has joined; the strategy does not say that it can never pass
	next     time.Time // when the first asks; the zero time: at once
	earliest time.Time // no deadline of a caller is before it
}

// waitID identifies a limit.
type waitID struct {
	strategy any // nil: it cannot be compared, and has no queue in the map
	key      string
	limit    uint64
	duration time.Duration
}

// newWaitID returns the limit that r waits for. The Limit is part of it: where others take more at
// a higher Limit, a request with a low one may never pass, and must not hold them up.
func newWaitID(s Strategy, r *Request) waitID {
	s, r = counting(s, r)
	id := waitID{key: r.Key, limit: r.Limit, duration: r.Duration}
	if b, ok := s.(interface{ of() (*Limiter, int64) }); ok {
		if l, series := b.of(); series != 0 {
			id.strategy = waitSeries{l, series, NameOf(s)}
			return id
		}
	}
	if equal(s, s) { // false for a NaN too, which no map finds again
		id.strategy = s
	}
	return id
}

// waitSeries identifies the strategy of equal limits, which may be made anywhere.
type waitSeries struct {
	l         *Limiter
	series    int64
	algorithm string
}

// counting returns the Strategy that counts for s, and the request that it gets for r.
func counting(s Strategy, r *Request) (Strategy, *Request) {
	for {
		switch of := s.(type) {
		case *Limit:
			q := *r
			q.Limit, q.Duration = of.n, of.d
			s, r = of.Unwrap(), &q
		case keyed:
			s, r = of.strategy, of.request(r)
		default:
			return s, r
		}
	}
}

// equal reports whether a == b. Where that panics, on types that cannot be compared, it is false.
func equal(a, b any) (ok bool) {
	defer func() { _ = recover() }()
	return a == b
}

// findQueue reports whether callers wait for id, and the largest cost that joined them.
func findQueue(id waitID) (queued bool, largest uint64) {
	waitQueues.RLock()
	defer waitQueues.RUnlock()
	if q := waitQueues.byID[id]; q != nil {
		queued, largest = true, q.largest
	}
	return
}

// joinQueue appends c to the queue of id.
func joinQueue(id waitID, c *waitCaller) (*waitQueue, *list.Element) {
	c.wake = make(chan struct{}, 1)
	waitQueues.Lock()
	defer waitQueues.Unlock()
	q := waitQueues.byID[id]
	if q == nil {
		q = &waitQueue{id: id, earliest: noDeadline}
		if id.strategy != nil {
			waitQueues.byID[id] = q
		}
	}
	q.largest = max(q.largest, c.cost)
	q.noteDeadline(c)
	return q, q.callers.PushBack(c)
}

// leave removes a caller. The next one is woken if it is now the first, and the queue removed if
// there is none.
func (q *waitQueue) leave(place *list.Element) {
	waitQueues.Lock()
	defer waitQueues.Unlock()
	first := q.callers.Front() == place
	q.callers.Remove(place)
	switch next := q.callers.Front(); {
	case next == nil:
		delete(waitQueues.byID, q.id)
	case first:
		q.next = time.Time{}
		next.Value.(*waitCaller).signal()
	}
}

// signalFirst wakes the first who waits for id, to ask again.
func signalFirst(id waitID) {
	waitQueues.RLock()
	defer waitQueues.RUnlock()
	if q := waitQueues.byID[id]; q != nil {
		q.callers.Front().Value.(*waitCaller).signal()
	}
}

// await returns when the caller is the first. It fails with ctx, and if the deadline is before the
// next try of the one that is.
func (q *waitQueue) await(ctx context.Context, place *list.Element) error {
	c := place.Value.(*waitCaller)
	for {
		first, next := q.state(place)
		if first {
			return nil
		}
		if err := c.checkDeadline(next); err != nil {
			return err
		}
		select {
		case <-c.wake:
			c.next, c.instant = time.Time{}, time.Time{} // what its first try found is out of date
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *waitQueue) state(place *list.Element) (first bool, next time.Time) {
	waitQueues.RLock()
	defer waitQueues.RUnlock()
	return q.callers.Front() == place, q.next
}

// asksAt notes that the first asks after left, at next, and wakes the callers whose deadline is
// before that. It looks at the others only if there may be such a one, and if left is a microsecond
// for each of them at least: else their own deadlines wake them as soon, and a queue would pass
// fewer the longer it is.
func (q *waitQueue) asksAt(next time.Time, left time.Duration) {
	waitQueues.Lock()
	defer waitQueues.Unlock()
	q.next = next
	if !q.earliest.Before(next) || left < time.Duration(q.callers.Len())*time.Microsecond {
		return
	}
	q.earliest = noDeadline
	for e := q.callers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*waitCaller); c.deadline.Before(next) {
			c.signal()
		} else {
			q.noteDeadline(c)
		}
	}
}

func (q *waitQueue) noteDeadline(c *waitCaller) {
	if c.deadline.Before(q.earliest) {
		q.earliest = c.deadline
	}
}

// signal wakes c, to look whether it is the first and its deadline still far enough.
func (c *waitCaller) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // it has yet to look
	}
}
