package slots

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/ids"
)

// Index finds slots by their keys: an open-addressed hash table of words, probed linearly and at
// most three quarters full. A key's position is the low half of its hash xor its period's salt: a
// search begins at the place in its low bits, and its high 12 bits are the tag.
//
// Readers take no lock. The words and chunk pointers change under the shard's mutex; the slices are
// replaced with the whole index. A reader that has an old one finds what was there, and may miss
// what came later: a miss is always looked at again under the mutex. A word xor a tag, less 2, is
// the slot's number if the word has that tag, else that of no slot.
type Index struct {
	words  []uint32 // atomic; a power of two long: the tag of a key 12, its slot's number plus 2 20
	chunks []atomic.Pointer[chunk]
}

const (
	emptyWord     = 0
	tombstoneWord = 1 // of a slot that was released

	slotMask = 1<<20 - 1
	maxSlots = slotMask - 1 // of a shard
	minIndex = 16           // words
)

// noIndex is the index of a shard without buckets.
var noIndex = &Index{words: make([]uint32, 1)}

// slot returns a slot by its number, or nil if there is none: its chunk was freed or came after the
// index, or n is -1 or over maxSlots.
func (x *Index) slot(n int) *Slot {
	if i := uint(n) / chunkSlots; i < uint(len(x.chunks)) {
		if c := x.chunks[i].Load(); c != nil {
			return &c[uint(n)%chunkSlots]
		}
	}
	return nil
}

// Find returns the slot of a key and its number, with its state as read before the key was
// compared; nil if there is none.
func (x *Index) Find(k ids.Packed, id string, p *Period) (s *Slot, state Word, n int) {
	if len(id) <= ids.Inline {
		return x.FindShort(k, len(id), p)
	}
	return FindLong(x, k, id, p)
}

// FindLong is Find for an ID of more than ids.Inline bytes, which may be no string.
func FindLong[T ids.Bytes](x *Index, k ids.Packed, id T, p *Period) (s *Slot, state Word, n int) {
	tag, tail := uint32(k.Hash^p.Salt)&^slotMask, p.high|uint64(len(id))
	for at := uint32(k.Hash ^ p.Salt); ; at++ {
		word := atomic.LoadUint32(&x.words[int(at)&(len(x.words)-1)])
		if word == emptyWord {
			return nil, 0, 0
		}
		n := int(word^tag) - 2
		s := x.slot(n)
		if s == nil {
			continue
		}
		state, rest := s.State(), s.load(restWord)
		if state.Live() && highBits(rest) == p.mid && s.load(lowWord) == p.low &&
			s.load(idWord) == k.A &&
			s.load(idWord2) == k.B && s.load(tailWord)&keyMask == tail && continues(x, rest, id[ids.Head:]) {
			return s, state, n
		}
	}
}

// FindShort is Find for an ID of at most ids.Inline bytes. It calls nothing, so that its words stay
// in registers.
func (x *Index) FindShort(k ids.Packed, length int, p *Period) (s *Slot, state Word, n int) {
	low, rest, tail := p.low, p.mid|k.C, p.high|uint64(length)
	at := uint32(k.Hash ^ p.Salt)
	tag := at &^ slotMask
	for ; ; at++ {
		word := atomic.LoadUint32(&x.words[int(at)&(len(x.words)-1)])
		if word == emptyWord {
			return nil, 0, 0
		}
		n := int(word^tag) - 2 // see Index
		s := x.slot(n)
		if s == nil {
			continue
		}
		// One test of all words takes fewer instructions than five.
		state := s.State()
		if state.Live() && (s.load(restWord)^rest)|(s.load(lowWord)^low)|(s.load(idWord)^k.A)|
			(s.load(idWord2)^k.B)|(s.load(tailWord)&keyMask^tail) == 0 {
			return s, state, n
		}
	}
}

// continues reports whether id, what follows the head of a long ID, is held by the slots from the
// one in rest on. It may be wrong if one is released meanwhile: the caller then finds another
// generation in the state, which is raised first.
func continues[T ids.Bytes](x *Index, rest uint64, id T) bool {
	for next := int(rest & countMask); ; {
		s := x.slot(next)
		if s == nil {
			return false
		}
		for i := lowWord; i <= tailWord; i++ {
			if len(id) <= 8 {
				return s.load(i) == ids.ShortWord(id)
			}
			if s.load(i) != ids.Word(id) {
				return false
			}
			id = id[8:]
		}
		next = int(s.load(deniedWord) & countMask)
	}
}

// appendID appends the ID of a slot. The shard's mutex is held.
func (x *Index) appendID(dst []byte, s *Slot) []byte {
	n := s.IDLen()
	end, rest := len(dst)+n, s.load(restWord)
	dst = ids.AppendWord(ids.AppendWord(dst, s.load(idWord)), s.load(idWord2)>>(8*max(0, ids.Head-n)))
	if n <= ids.Inline {
		return ids.AppendWord(dst, rest)[:end]
	}
	for next := rest; len(dst) < end; next = s.load(deniedWord) {
		s = x.slot(int(next & countMask))
		for i := lowWord; i <= tailWord; i++ {
			dst = ids.AppendWord(dst, s.load(i))
		}
	}
	return dst[:end]
}

// put stores a word in the first free place of its search. It reports whether that place was empty.
func (x *Index) put(at uint32, n int) (wasEmpty bool) {
	for i := at; ; i++ {
		word := &x.words[int(i)&(len(x.words)-1)]
		if was := atomic.LoadUint32(word); was == emptyWord || was == tombstoneWord {
			atomic.StoreUint32(word, at&^slotMask|uint32(n+2))
			return was == emptyWord
		}
	}
}

// remove takes a word out, and returns how many words became empty: if the next one is empty, no
// search needs to pass this one and the tombstones before it.
func (x *Index) remove(at uint32, n int) (emptied int) {
	mask, i := len(x.words)-1, int(at)
	for atomic.LoadUint32(&x.words[i&mask]) != at&^slotMask|uint32(n+2) {
		i++
	}
	atomic.StoreUint32(&x.words[i&mask], tombstoneWord)
	if atomic.LoadUint32(&x.words[(i+1)&mask]) != emptyWord {
		return 0
	}
	for ; atomic.LoadUint32(&x.words[i&mask]) == tombstoneWord; i-- {
		atomic.StoreUint32(&x.words[i&mask], emptyWord)
		emptied++
	}
	return emptied
}
