package offenders

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// spaceSaving finds the keys that come most often, on a binary heap.
type spaceSaving struct {
	max int

	mu    sync.Mutex
	heap  []*counter // guarded by mu, as all below; the rarest first
	at    map[string]*counter
	total uint64
}

// counter is what is known of one key.
type counter struct {
	Offender
	index int // in the heap
}

// add counts key n times, and returns how often keys have come in all.
func (t *spaceSaving) add(key string, n uint64, now time.Time) (total uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += n
	c := t.at[key]
	switch {
	case c != nil:
	case len(t.heap) < t.max:
		c = &counter{index: len(t.heap)}
		c.Key = strings.Clone(key) // a key cut from a header must not pin the header
		t.heap = append(t.heap, c)
		t.at[c.Key] = c
		t.up(c.index) // it has the least count there is: 0
	default:
		c = t.heap[0]
		delete(t.at, c.Key)
		c.Key, c.Error = strings.Clone(key), c.Denied
		t.at[c.Key] = c
	}
	c.Denied += n
	c.Last = now
	t.down(c.index)
	return t.total
}

// top returns the n keys with the highest counts, highest first, and how often keys have come in
// all.
func (t *spaceSaving) top(n int) ([]Offender, uint64) {
	t.mu.Lock()
	all := make([]Offender, len(t.heap))
	for i, c := range t.heap {
		all[i] = c.Offender
	}
	total := t.total
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Error, b.Error),
			strings.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))], total
}

// up moves the counter at i towards the root until its parent is no more frequent. mu is held.
func (t *spaceSaving) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].Denied <= t.heap[i].Denied {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

// down moves the counter at i away from the root until no child is rarer. mu is held.
func (t *spaceSaving) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		if other := child + 1; other < len(t.heap) && t.heap[other].Denied < t.heap[child].Denied {
			child = other
		}
		if t.heap[i].Denied <= t.heap[child].Denied {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *spaceSaving) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].index, t.heap[j].index = i, j
}
