package proxy

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// topk finds the keys that come most often, in bounded memory: the Space-Saving algorithm of Metwally, Agrawal and El
// Abbadi (2005), on a binary heap. While no more than max different keys have come the counts are exact. From then on a
// new key takes the place of the rarest and inherits its count, which is remembered as the new one's error: a key's true
// count is between n-err and n, no error exceeds total/max, and every key that came more often than that is there.
//
// It is safe for concurrent use. A hit costs a map access and log2(max) swaps at most.
type topk struct {
	max int

	mu    sync.Mutex
	heap  []*counter // guarded by mu, as all below; the rarest first
	at    map[string]*counter
	total uint64
}

// counter is what is known of one key.
type counter struct {
	key    string
	n, err uint64
	last   int64 // when it came last: Unix time, in ms
	index  int   // in the heap
}

func newTopK(max int) *topk { return &topk{max: max, at: make(map[string]*counter)} }

// hit counts key once.
func (t *topk) hit(key string, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total++
	c := t.at[key]
	switch {
	case c != nil:
	case len(t.heap) < t.max:
		c = &counter{key: strings.Clone(key), index: len(t.heap)} // a key cut from a header must not pin the header
		t.heap = append(t.heap, c)
		t.at[c.key] = c
		t.up(c.index) // it has the least count there is: 0
	default:
		c = t.heap[0]
		delete(t.at, c.key)
		c.key, c.err = strings.Clone(key), c.n
		t.at[c.key] = c
	}
	c.n++
	c.last = now
	t.down(c.index)
}

// top returns the n keys with the highest counts, highest first, and the number of hits of all keys.
func (t *topk) top(n int) ([]counter, uint64) {
	t.mu.Lock()
	all := make([]counter, len(t.heap))
	for i, c := range t.heap {
		all[i] = *c
	}
	total := t.total
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b counter) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.err, b.err), strings.Compare(a.key, b.key))
	})
	return all[:min(n, len(all))], total
}

// up moves the counter at i towards the root until its parent is no more frequent. mu is held.
func (t *topk) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].n <= t.heap[i].n {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

// down moves the counter at i away from the root until no child is rarer. mu is held.
func (t *topk) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		if other := child + 1; other < len(t.heap) && t.heap[other].n < t.heap[child].n {
			child = other
		}
		if t.heap[i].n <= t.heap[child].n {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *topk) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].index, t.heap[j].index = i, j
}
