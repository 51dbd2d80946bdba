package weir

import (
	"math/bits"
	"sync/atomic"
)

// recent is an index in front of a table's map: the entries last found, in sets of a cache line each. It turns the
// seven dependent loads of a look-up into three. It may be stale or empty, and is never wrong: an entry is compared in
// full before it is used, and one that was removed is either over or marked.
type recent[S any] struct {
	sets []set[S] // a power of two
}

const ways = 7

// set keeps a byte of each digest beside the entries, so that the look-up of an id that is not here touches no entry of
// another: at a million ids each costs a cache miss. A tag and its entry are stored one after the other; a reader that
// sees one without the other finds nothing, or an entry of another key, and looks in the map.
type set[S any] struct {
	tags    atomic.Uint64 // byte i is that of entries[i]
	entries [ways]atomic.Pointer[entry[S]]
}

// maxSets bounds the index: 512 KiB, for 57,344 entries.
const maxSets = 1 << 13

func newRecent[S any](sets int) *recent[S] { return &recent[S]{sets: make([]set[S], sets)} }

func (r *recent[S]) set(digest uint64) *set[S] { return &r.sets[digest&uint64(len(r.sets)-1)] }

// homeOf is the way where an entry of digest goes if it is free.
func homeOf(digest uint64) uint64 { return digest >> 48 * ways >> 16 }

func tag(digest uint64) uint64 { return digest >> 40 & 0xff }

// home returns the entry at home for digest, or nil if its tag is another. The caller compares the key.
func (s *set[S]) home(digest uint64) *entry[S] {
	home := homeOf(digest)
	if s.tags.Load()>>(8*home)&0xff == tag(digest) {
		return s.entries[home].Load()
	}
	return nil
}

// search returns the entry of a key if it is in any of the ways.
func (s *set[S]) search(digest uint64, id string, of period) *entry[S] {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := s.tags.Load() ^ tag(digest)*ones // a zero byte for each way with our tag
	for match := (x - ones) &^ x & highs << 8 >> 8; match != 0; match &= match - 1 {
		e := s.entries[bits.TrailingZeros64(match)/8].Load()
		if e != nil && e.is(id, of) {
			return e
		}
	}
	return nil
}

// put keeps e at home or, where that is taken, in the place of any.
func (s *set[S]) put(digest uint64, e *entry[S]) {
	old := s.tags.Load()
	way := homeOf(digest)
	if s.entries[way].Load() != nil {
		way = old * 0x9e3779b97f4a7c15 >> 32 * ways >> 32 // as good as chance
	}
	s.entries[way].Store(e)
	s.tags.CompareAndSwap(old, old&^(0xff<<(8*way))|tag(digest)<<(8*way))
}

// forget drops e.
func (s *set[S]) forget(e *entry[S]) {
	for way := range s.entries {
		if s.entries[way].Load() == e {
			s.entries[way].CompareAndSwap(e, nil)
		}
	}
}

// grow keeps the index at least twice as large as the table, up to its bound. The new one starts empty: look-ups fill
// it.
func (t *table[S, P]) grow() {
	r := t.recent.Load()
	if n := len(r.sets); n < maxSets && t.room.inUse()*2 > int64(n*ways) {
		t.recent.CompareAndSwap(r, newRecent[S](n*2))
	}
}
