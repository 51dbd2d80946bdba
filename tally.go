package weir

import (
	"sync"
	"sync/atomic"
)

// tally is a sum that decisions add to. It shares no cache line with what they read. It is one word
// until two of them add at once; from then on it is one a processor, so that none waits for
// another, which costs a decision that has no company 7 ns.
type tally struct {
	_       [64]byte
	one     atomic.Int64 // striped more once there are stripes
	stripes atomic.Pointer[stripes]
	_       [48]byte
}

const striped = 1 << 62

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
	if one > striped/2 || !t.one.CompareAndSwap(one, one+n) {
		t.addStriped(n)
	}
}

func (t *tally) addStriped(n int64) {
	if t.stripes.Load() == nil && t.stripes.CompareAndSwap(nil, new(stripes)) {
		t.one.Add(striped)
	}
	s := t.stripes.Load()
	sum, _ := s.free.Get().(*atomic.Int64)
	if sum == nil {
		sum = &s.sums[s.next.Add(1)%uint32(len(s.sums))].Int64
	}
	sum.Add(n)
	s.free.Put(sum)
}

func (t *tally) load() uint64 {
	n := t.one.Load()
	if n > striped/2 {
		n -= striped
	}
	if s := t.stripes.Load(); s != nil {
		for i := range s.sums {
			n += s.sums[i].Load()
		}
	}
	return uint64(n)
}
