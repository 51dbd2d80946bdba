package httpclient

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxPaused bounds the keys with a pause. Beyond it, pauses are ignored.
	maxPaused = 10_000

	// firstGap is the mean time between the first two requests after a pause. Each further gap is
	// half of the previous one, and below leastGap there is none. The server gets about eight
	// requests in the first 200 ms, so it can ask for another pause before it gets many.
	firstGap = 100 * time.Millisecond
	leastGap = time.Millisecond
)

// turns orders the waiting requests of each key: the first waits for the pause and the limit, the
// others for their turn, so that they are sent in order of arrival. A key has an entry while it is
// paused or has waiting requests; after a pause the entry stays until the next request of the key,
// or until purge removes it.
type turns struct {
	mu   sync.Mutex
	keys map[string]*queue // guarded by mu
}

// queue is guarded by turns.mu.
type queue struct {
	until   time.Time     // the end of the pause
	next    time.Time     // no request before it; set by the previous request
	gap     time.Duration // between the next two requests; 0: they need not keep apart
	waiting list.List     // of turn, in order of arrival
}

// turn is one waiting request. It is closed when the request is the first of its queue.
type turn chan struct{}

// earliest returns when the first request may be sent.
func (q *queue) earliest() time.Time {
	if q.next.After(q.until) {
		return q.next
	}
	return q.until
}

// pause returns the rest of the pause of key.
func (t *turns) pause(key string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.keys[key]
	if q == nil {
		return 0
	}
	return max(0, q.until.Sub(now))
}

// free reports whether a request of key need not wait for a pause or for other requests.
func (t *turns) free(key string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.keys[key]
	if q == nil {
		return true
	}
	if q.waiting.Len() > 0 || q.earliest().After(now) {
		return false
	}
	delete(t.keys, key)
	return true
}

// join appends a request to the queue of key. The channel is closed when the request is first.
func (t *turns) join(key string) (*list.Element, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.keys[key]
	if q == nil {
		q = t.add(key)
	}
	w := make(turn)
	if q.waiting.Len() == 0 {
		close(w)
	}
	return q.waiting.PushBack(w), w
}

// leave removes place from the queue; sent reports whether its request is sent now.
func (t *turns) leave(key string, place *list.Element, sent bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.keys[key]
	wasFirst := q.waiting.Front() == place
	q.waiting.Remove(place)
	if sent && q.gap > 0 {
		q.next = now.Add(q.gap/2 + rand.N(q.gap))
		if q.gap /= 2; q.gap < leastGap {
			q.gap = 0
		}
	}
	switch first := q.waiting.Front(); {
	case first != nil && wasFirst:
		close(first.Value.(turn))
	case first == nil && !q.earliest().After(now):
		delete(t.keys, key)
	}
}

// ready returns how long the first request has to wait for a pause or a gap.
func (t *turns) ready(key string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.keys[key].earliest().Sub(now))
}

// extend makes a pause last until the given instant, unless it lasts longer already: answers may
// arrive out of order.
func (t *turns) extend(key string, until, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.keys[key]
	if q == nil {
		if len(t.keys) >= maxPaused && !t.purge(now) {
			return
		}
		q = t.add(key)
	}
	if until.After(q.until) {
		q.until, q.gap = until, firstGap
	}
}

// add adds a queue for key. mu is held.
func (t *turns) add(key string) *queue {
	if t.keys == nil {
		t.keys = make(map[string]*queue)
	}
	q := &queue{}
	t.keys[key] = q
	return q
}

// purge removes the entries whose pause has ended and reports whether there is room. mu is held.
func (t *turns) purge(now time.Time) bool {
	for key, q := range t.keys {
		if q.waiting.Len() == 0 && !q.earliest().After(now) {
			delete(t.keys, key)
		}
	}
	return len(t.keys) < maxPaused
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
