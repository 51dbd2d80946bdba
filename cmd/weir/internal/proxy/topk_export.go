package proxy

import "time"

// TopK finds the keys that come most often, in bounded memory. It is safe for concurrent use.
type TopK struct{ t *topk }

// Count is how often a key came: at most N times, and at least N-Err.
type Count struct {
	Key    string
	N, Err uint64
}

// NewTopK returns a TopK that keeps up to max keys.
func NewTopK(max int) *TopK { return &TopK{newTopK(max)} }

// Hit counts key once.
func (t *TopK) Hit(key string) { t.t.hit(key, time.Now().UnixMilli()) }

// Top returns the n keys with the highest counts, highest first.
func (t *TopK) Top(n int) []Count {
	top, _ := t.t.top(n)
	list := make([]Count, len(top))
	for i, c := range top {
		list[i] = Count{c.key, c.n, c.err}
	}
	return list
}
