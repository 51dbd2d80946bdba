// Package tally adds up what decisions count on several processors at once.
package tally

import (
	"math"
	"sync"
	"sync/atomic"
)

// Tally is a sum that decisions add to. It may wrap around. It shares no cache line with what they
// read. It is one word until two of them add at once. From then on each processor has a word, so
// that none waits for another; a decision that is alone then takes 7 ns longer.
type Tally struct {
	_       [64]byte
	one     atomic.Int64 // the sum, or striped if there are stripes
	stripes atomic.Pointer[stripes]
	mu      sync.Mutex // held while the sum moves to stripes, and while it is read
	_       [40]byte
}

const striped = math.MinInt64

type stripes struct {
	free sync.Pool // of pointers to sums: a processor mostly takes the one that it gave back last
	next atomic.Uint32
	sums [65]struct { // the first has the line of what is above, and holds what one held
		atomic.Int64
		_ [56]byte
	}
}

// One returns the word that Add adds to.
func (t *Tally) One() int64 { return t.one.Load() }

// Add adds n, given One as it was just now: with the load, or with addStriped, it would be too long
// to be inlined.
func (t *Tally) Add(one, n int64) {
	if one == striped || !t.one.CompareAndSwap(one, one+n) {
		t.addStriped(n)
	}
}

//go:noinline
func (t *Tally) addStriped(n int64) { t.Stripe().Add(n) }

// Stripe returns the word of this processor. It makes the stripes if there are none.
func (t *Tally) Stripe() *atomic.Int64 {
	s := t.stripes.Load()
	if s == nil {
		t.mu.Lock()
		if s = t.stripes.Load(); s == nil {
			s = new(stripes)
			s.sums[0].Store(t.one.Swap(striped))
			t.stripes.Store(s)
		}
		t.mu.Unlock()
	}
	sum, _ := s.free.Get().(*atomic.Int64)
	if sum == nil {
		sum = &s.sums[1+s.next.Add(1)%64].Int64
	}
	s.free.Put(sum)
	return sum
}

// Load returns the sum.
func (t *Tally) Load() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stripes.Load()
	if s == nil {
		return uint64(t.one.Load())
	}
	sum := int64(0)
	for i := range s.sums {
		sum += s.sums[i].Load()
	}
	return uint64(sum)
}
