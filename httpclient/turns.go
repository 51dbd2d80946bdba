package httpclient

import (
	"context"
	"sync"
	"time"
)

const (
	// maxPaused bounds the scopes with a pause. Beyond it, a new pause takes the place of the one that
	// ends first of evictOf.
	maxPaused = 10_000
	evictOf   = 16
)

// scope is what a pause holds back: all requests of a key, or those that count for a resource.
type scope struct {
	key      string
	resource string // "": all
}

// turns orders the waiting requests of each key. A key has a queue while it is paused or has
// waiting requests; after a pause the queue stays until the next request of the key, or until evict
// removes it.
type turns struct {
	mu       sync.Mutex
	arrivals uint64            // guarded by mu
	queues   map[string]*queue // by key; guarded by mu
	rows     int               // of all queues; guarded by mu
}

// arrive returns the number of a new request of s, and whether it need not wait: for a pause, or
// for requests that can be sent before it.
func (t *turns) arrive(s scope, now time.Time) (arrival uint64, free bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrivals++
	q := t.queues[s.key]
	if q == nil {
		return t.arrivals, true
	}
	if q.turn != nil || q.pause(s.resource, now) > 0 || q.oldest(now) != nil {
		return t.arrivals, false
	}
	t.tidy(s.key, now)
	return t.arrivals, true
}

// pause returns how long requests of s have to wait for a pause or a gap.
func (t *turns) pause(s scope, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s.key]
	if q == nil {
		return 0
	}
	return q.pause(s.resource, now)
}

// join has a request wait in the row of s, among the others in order of arrival.
func (t *turns) join(s scope, arrival uint64, now time.Time) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiter{scope: s, arrival: arrival, since: now, wake: make(chan struct{}, 1)}
	t.add(s).insert(w)
	return w
}

// look returns how long w has to wait for a pause or a gap, whether it is the first of its row, and
// whether it has the turn. If its resource has become known, w moves to the row of that: each does
// when it is the first of all whose resource is not known, so in order of arrival.
func (t *turns) look(
	w *waiter, resource string, now time.Time,
) (pause time.Duration, first, turn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[w.key]
	if w.resource != resource {
		q.rows[w.resource].waiting.Remove(w.place)
		w.resource = resource
		t.add(w.scope).insert(w)
	}
	first = q.rows[resource].waiting.Front() == w.place
	if pause = q.pause(resource, now); pause > 0 {
		w.due = later(w.due, now.Add(pause))
	}
	if q.turn == w && (pause > 0 || !first) {
		q.endTurn(now)
	}
	q.pass(now)
	return pause, first, q.turn == w
}

// leave removes w, which is sent now or gives up.
func (t *turns) leave(w *waiter, sent bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[w.key]
	if sent {
		q.rows[w.resource].spread(now)
		if w.resource != "" {
			q.rows[""].spread(now)
		}
	}
	q.rows[w.resource].waiting.Remove(w.place)
	if q.turn == w {
		q.endTurn(now)
	}
	q.pass(now)
	t.tidy(w.key, now)
}

// extend makes a pause last until the given instant, unless it lasts longer already: answers may
// arrive out of order.
func (t *turns) extend(s scope, until, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(s) == nil && t.rows >= maxPaused && !t.evict() {
		return
	}
	if r := t.add(s); until.After(r.until) {
		r.until, r.gap = until, firstGap
	}
}

// find returns the row of s, or nil. mu is held.
func (t *turns) find(s scope) *row {
	q := t.queues[s.key]
	if q == nil {
		return nil
	}
	return q.rows[s.resource]
}

// add returns the row of s, which it adds if there is none. mu is held.
func (t *turns) add(s scope) *row {
	if r := t.find(s); r != nil {
		return r
	}
	if t.queues == nil {
		t.queues = make(map[string]*queue)
	}
	if t.queues[s.key] == nil {
		t.queues[s.key] = &queue{rows: make(map[string]*row)}
	}
	r := &row{}
	t.queues[s.key].rows[s.resource] = r
	t.rows++
	return r
}

// tidy removes the rows of a key whose pause is over and in which nobody waits. mu is held.
func (t *turns) tidy(key string, now time.Time) {
	for resource, r := range t.queues[key].rows {
		if r.waiting.Len() == 0 && !r.earliest().After(now) {
			t.remove(scope{key, resource})
		}
	}
}

// remove removes the row of s, and the queue if that was its last one. mu is held.
func (t *turns) remove(s scope) {
	q := t.queues[s.key]
	delete(q.rows, s.resource)
	t.rows--
	if len(q.rows) == 0 {
		delete(t.queues, s.key)
	}
}

// evict removes the pause that ends first of some without waiting requests, so that a new one takes
// its place: the scope of that was used last. To look at all takes half a millisecond with mu held.
// It reports whether it has found one. mu is held.
func (t *turns) evict() bool {
	var first scope
	var found *row
	looked := 0
	for key, q := range t.queues { // from a random one on
		for resource, r := range q.rows {
			if r.waiting.Len() == 0 && (found == nil || r.earliest().Before(found.earliest())) {
				first, found = scope{key, resource}, r
			}
			looked++
		}
		if looked >= evictOf {
			break
		}
	}
	if found != nil {
		t.remove(first)
	}
	return found != nil
}

// sleep waits for d, or until ctx is done. If d is 0, as where the Strategy's clock is behind, it
// waits for a millisecond.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		d = time.Millisecond
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
