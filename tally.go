package weir

import (
	"math"
	"sync"
	"sync/atomic"
)

// tally is a sum that decisions add to, and may wrap around. It shares no cache line with what they
// read. It is one word until two of them add at once; from then on it is one a processor, so that
// none waits for another, which costs a decision that has no company 7 ns.
type tally struct {
	_       [64]byte
	one     atomic.Int64 // the sum, or striped if there are stripes
	stripes atomic.Pointer[stripes]
	mu      sync.Mutex // held while the sum moves to stripes, and while it is read
	_       [40]byte
}

const striped = math.MinInt64

type stripes struct {
	free sync.Pool // of pointers to sums: a processor takes the one that it gave back last
	next atomic.Uint32
	sums [64]struct {
		atomic.Int64
		_ [56]byte
	}
}

// add adds n, given t.one as loaded just now: with the load it would be too long to be inlined.
func (t *tally) add(one, n int64) {
	if one == striped || !t.one.CompareAndSwap(one, one+n) {
		t.addStriped(n)
	}
}

func (t *tally) addStriped(n int64) {
	s := t.stripes.Load()
	if s == nil {
		s = t.stripe()
	}
	sum, _ := s.free.Get().(*atomic.Int64)
	if sum == nil {
		sum = &s.sums[s.next.Add(1)%uint32(len(s.sums))].Int64
	}
	sum.Add(n)
	s.free.Put(sum)
}

// stripe returns the stripes, and moves the sum to them if there were none.
func (t *tally) stripe() *stripes {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stripes.Load() == nil {
		s := new(stripes)
		s.sums[0].Store(t.one.Swap(striped))
		t.stripes.Store(s)
	}
	return t.stripes.Load()
}

func (t *tally) load() uint64 {
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
