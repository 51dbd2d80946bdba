// Package frequent finds the keys that come most often, in bounded memory: the Space-Saving
// algorithm (Metwally, Agrawal and El Abbadi, 2005).
package frequent

import (
	"container/heap"
	"strings"
)

// Keys counts keys, on a binary heap. Once it has its most keys, a new one takes the counter of the
// rarest and inherits its count. Make one with [New]. It is not safe for concurrent use.
type Keys[V any] struct {
	most  int
	heap  counters[V]
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
		k.at[c.Key] = c
		heap.Push(&k.heap, c)
	default:
		c = k.heap[0]
		delete(k.at, c.Key)
		*c = Counter[V]{Key: strings.Clone(key), N: c.N, Error: c.N, index: c.index}
		k.at[c.Key] = c
	}
	c.N += n
	heap.Fix(&k.heap, c.index)
	return c
}

// Find returns the counter of a key, or nil.
func (k *Keys[V]) Find(key string) *Counter[V] { return k.at[key] }

// All returns the counters, in any order. The slice is valid until the next Add.
func (k *Keys[V]) All() []*Counter[V] { return k.heap }

// Total returns how often keys have come in all.
func (k *Keys[V]) Total() uint64 { return k.total }

// counters are a heap, the rarest first.
type counters[V any] []*Counter[V]

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h counters[V]) Len() int           { return len(h) }
func (h counters[V]) Less(i, j int) bool { return h[i].N < h[j].N }

func (h counters[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *counters[V]) Push(c any) { *h = append(*h, c.(*Counter[V])) }

// Pop is not called: a counter stays, and takes another key.
func (h *counters[V]) Pop() any { panic("frequent: no counter is taken away") }
