package httpclient

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxPaused bounds the scopes with a pause. Beyond it, a new pause takes the place of the one that
	// ends first of evictOf.
	maxPaused = 10_000
	evictOf   = 16

	// firstGap is the mean time between the first two requests after a pause. Each further gap is
	// half of the previous one, and below leastGap there is none. The server gets about eight
	// requests in the first 200 ms, so it can ask for another pause before it gets many.
	firstGap = 100 * time.Millisecond
	leastGap = time.Millisecond
)

// scope is what a pause holds back: all requests of a key, or those that count for a resource.
type scope struct {
	key      string
	resource string // "": all
}

// turns orders the waiting requests of each scope: the first waits for the pause and the limit, the
// others for their turn, so that they are sent in order of arrival. A scope has an entry while it
// is paused or has waiting requests; after a pause the entry stays until the next request of the
// scope, or until evict removes it.
type turns struct {
	mu     sync.Mutex
	queues map[scope]*queue // guarded by mu
}

// queue is one scope's, guarded by turns.mu.
type queue struct {
	until   time.Time     // the end of the pause
	next    time.Time     // no request before it; set by the previous request
	gap     time.Duration // between the next two requests; 0: they need not keep apart
	due     time.Time     // when the last one that was first was, as far as its limit was asked
	waiting list.List     // of turn, in order of arrival
}

// turn is one waiting request. It is closed when the request is the first of its queue.
type turn chan struct{}

// earliest returns when the first request may be sent.
func (q *queue) earliest() time.Time { return later(q.next, q.until) }

// pause returns the rest of the pause of s.
func (t *turns) pause(s scope, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s]
	if q == nil {
		return 0
	}
	return max(0, q.until.Sub(now))
}

// free reports whether a request of s need not wait for a pause or for other requests.
func (t *turns) free(s scope, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s]
	if q == nil {
		return true
	}
	if q.waiting.Len() > 0 || q.earliest().After(now) {
		return false
	}
	delete(t.queues, s)
	return true
}

// join appends a request to the queue of s. The channel is closed when the request is first.
func (t *turns) join(s scope) (*list.Element, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s]
	if q == nil {
		q = t.add(s)
	}
	w := make(turn)
	if q.waiting.Len() == 0 {
		close(w)
	}
	return q.waiting.PushBack(w), w
}

// leave removes place from the queue; sent reports whether its request is sent now, and due when
// its limit was due to admit it; the zero time if that was not asked.
func (t *turns) leave(s scope, place *list.Element, sent bool, due, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s]
	wasFirst := q.waiting.Front() == place
	q.waiting.Remove(place)
	if wasFirst && due.After(now) {
		q.due = now // it gives up: the next one is due no later
	} else if wasFirst {
		q.due = later(q.due, due)
	}
	if sent && q.gap > 0 {
		q.next = now.Add(q.gap/2 + rand.N(q.gap))
		q.gap /= 2
		if q.gap < leastGap {
			q.gap = 0
		}
	}
	switch first := q.waiting.Front(); {
	case first != nil && wasFirst:
		close(first.Value.(turn))
	case first == nil && !q.earliest().After(now):
		delete(t.queues, s)
	}
}

// ready returns how long the first request has to wait for a pause or a gap.
func (t *turns) ready(s scope, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.queues[s].earliest().Sub(now))
}

// due returns when the request before the first one was due.
func (t *turns) due(s scope) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queues[s].due
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// extend makes a pause last until the given instant, unless it lasts longer already: answers may
// arrive out of order.
func (t *turns) extend(s scope, until, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[s]
	if q == nil {
		if len(t.queues) >= maxPaused && !t.evict() {
			return
		}
		q = t.add(s)
	}
	if until.After(q.until) {
		q.until, q.gap = until, firstGap
	}
}

// add adds a queue for s. mu is held.
func (t *turns) add(s scope) *queue {
	if t.queues == nil {
		t.queues = make(map[scope]*queue)
	}
	q := &queue{}
	t.queues[s] = q
	return q
}

// evict removes the pause that ends first of some without waiting requests, so that a new one takes
// its place: the scope of that was used last. To look at all takes half a millisecond with mu held.
// It reports whether it has found one. mu is held.
func (t *turns) evict() bool {
	var first scope
	var found *queue
	looked := 0
	for s, q := range t.queues { // from a random one on
		if q.waiting.Len() == 0 && (found == nil || q.earliest().Before(found.earliest())) {
			first, found = s, q
		}
		looked++
		if looked == evictOf {
			break
		}
	}
	delete(t.queues, first)
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
