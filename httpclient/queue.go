package httpclient

import (
	"container/list"
	"math/rand/v2"
	"time"
)

const (
	// firstGap is the mean time between the first two requests after a pause. Each further gap is
	// half of the previous one, and below leastGap there is none. The server gets about eight
	// requests in the first 200 ms, so it can ask for another pause before it gets many.
	firstGap = 100 * time.Millisecond
	leastGap = time.Millisecond
)

// queue is one key's, guarded by turns.mu. A waiting request has one place in it, in the row of its
// resource. The first of each row waits for its pause, and the others for the first. Of the first
// ones that no pause holds back, the one that arrived first has the turn, until it leaves or is
// paused again.
type queue struct {
	rows map[string]*row // by resource; "": none is known; its pause holds back all rows
	turn *waiter         // it alone takes the limit; nil: all are paused
	due  time.Time       // when the last one with the turn was, as far as its limit was asked
}

// row is the requests of a resource that wait, and its pause, guarded by turns.mu.
type row struct {
	until   time.Time     // the end of the pause
	next    time.Time     // no request before it; set by the previous request
	gap     time.Duration // between the next two requests; 0: they need not keep apart
	waiting list.List     // of *waiter, in order of arrival
}

// waiter is one waiting request.
type waiter struct {
	scope
	arrival uint64
	since   time.Time     // when it joined
	place   *list.Element // in its row; guarded by turns.mu
	wake    chan struct{} // receives when it has the turn, or has to wait for its pause

	// due is when the request was due, as far as that is known; the zero time: at the present. It is
	// guarded by turns.mu, and the request's own while it has the turn.
	due time.Time
}

// pause returns how long requests of a resource have to wait for a pause or a gap.
func (q *queue) pause(resource string, now time.Time) time.Duration {
	return max(0, later(q.rows[""].earliest(), q.rows[resource].earliest()).Sub(now))
}

// oldest returns the request that arrived first of those that no pause holds back, or nil.
func (q *queue) oldest(now time.Time) (oldest *waiter) {
	for resource, r := range q.rows {
		first := r.first()
		if first != nil && q.pause(resource, now) == 0 &&
			(oldest == nil || first.arrival < oldest.arrival) {
			oldest = first
		}
	}
	return oldest
}

// pass gives the turn to the oldest, if nobody has it. If all are paused, it wakes the first of
// each row to wait for its pause: it may have waited for the turn.
func (q *queue) pass(now time.Time) {
	if q.turn != nil {
		return
	}
	if q.turn = q.oldest(now); q.turn == nil {
		for _, r := range q.rows {
			r.first().signal()
		}
		return
	}
	if !q.due.IsZero() {
		q.turn.due = later(q.turn.due, later(q.due, q.turn.since))
	}
	q.turn.signal()
}

// endTurn takes the turn away. If its request was due later, the next one is due no later than now.
func (q *queue) endTurn(now time.Time) {
	if q.turn.due.After(now) {
		q.due = now
	} else {
		q.due = later(q.due, q.turn.due)
	}
	q.turn = nil
}

// earliest returns when the first request may be sent; the zero time if there is no row.
func (r *row) earliest() time.Time {
	if r == nil {
		return time.Time{}
	}
	return later(r.next, r.until)
}

// first returns the request that arrived first, or nil.
func (r *row) first() *waiter {
	if front := r.waiting.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

// insert adds w behind those that arrived before it.
func (r *row) insert(w *waiter) {
	e := r.waiting.Back()
	for e != nil && e.Value.(*waiter).arrival > w.arrival {
		e = e.Prev()
	}
	if e == nil {
		w.place = r.waiting.PushFront(w)
	} else {
		w.place = r.waiting.InsertAfter(w, e)
	}
}

// spread keeps the next request apart from the one that is sent now.
func (r *row) spread(now time.Time) {
	if r == nil || r.gap == 0 {
		return
	}
	r.next = now.Add(r.gap/2 + rand.N(r.gap))
	r.gap /= 2
	if r.gap < leastGap {
		r.gap = 0
	}
}

// signal wakes w, to look again; nil: nobody.
func (w *waiter) signal() {
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // it has yet to look
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
