// Package frequent finds the keys that come most often, in bounded memory: the Space-Saving
// algorithm (Metwally, Agrawal and El Abbadi, 2005).
package frequent

import "strings"

// Keys counts keys, on a binary heap. Once it has its most keys, a new one takes the counter of the
// rarest and inherits its count. Make one with [New]. It is not safe for concurrent use.
type Keys[V any] struct {
	most  int
	heap  []*Counter[V] // the rarest first
	at    map[string]*Counter[V]
	total uint64
}

// Counter is what is known of one key: it came between N-Error and N times.
type Counter[V any] struct {
	Key      string
	N, Error uint64
	Value    V // the caller's; the zero value when another key takes the counter

	index int // in the heap
}

// New returns Keys that hold at most so many keys, at least one.
func New[V any](most int) *Keys[V] {
	return &Keys[V]{most: most, at: make(map[string]*Counter[V])}
}

// Add counts key n times and returns its counter, which is the key's until the next Add.
func (k *Keys[V]) Add(key string, n uint64) *Counter[V] {
	k.total += n
	c := k.at[key]
	switch {
	case c != nil:
	case len(k.heap) < k.most:
		// A key that is cut from a header must not pin the header.
		c = &Counter[V]{Key: strings.Clone(key), index: len(k.heap)}
		k.heap = append(k.heap, c)
		k.at[c.Key] = c
		k.up(c.index) // it has the least count there is: 0
	default:
		c = k.heap[0]
		delete(k.at, c.Key)
		*c = Counter[V]{Key: strings.Clone(key), N: c.N, Error: c.N, index: c.index}
		k.at[c.Key] = c
	}
	c.N += n
	k.down(c.index)
	return c
}

// Find returns the counter of a key, or nil.
func (k *Keys[V]) Find(key string) *Counter[V] { return k.at[key] }

// All returns the counters, in any order. The slice is valid until the next Add.
func (k *Keys[V]) All() []*Counter[V] { return k.heap }

// Total returns how often keys have come in all.
func (k *Keys[V]) Total() uint64 { return k.total }

// up moves the counter at i towards the root until its parent is no more frequent.
func (k *Keys[V]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if k.heap[parent].N <= k.heap[i].N {
			return
		}
		k.swap(i, parent)
		i = parent
	}
}

// down moves the counter at i away from the root until no child is rarer.
func (k *Keys[V]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(k.heap) {
			return
		}
		if other := child + 1; other < len(k.heap) && k.heap[other].N < k.heap[child].N {
			child = other
		}
		if k.heap[i].N <= k.heap[child].N {
			return
		}
		k.swap(i, child)
		i = child
	}
}

func (k *Keys[V]) swap(i, j int) {
	k.heap[i], k.heap[j] = k.heap[j], k.heap[i]
	k.heap[i].index, k.heap[j].index = i, j
}
