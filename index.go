package weir

import "sync/atomic"

// index finds slots by their keys: an open-addressed hash table of words, probed linearly and at
// most three quarters full. A key's position is the low half of its hash xor its period's salt: a
// search begins at the place in its high bits, and its low bits are the tag.
//
// Readers take no lock. The words and chunk pointers change under the shard's mutex; the slices are
// replaced with the whole index. A reader that has an old one finds what was there, and may miss
// what came later: a miss is always looked at again under the mutex.
type index struct {
	words  []uint32 // atomic; a power of two long: the tag of a key 12, its slot's number plus 2 20
	chunks []atomic.Pointer[chunk]
	shift  uint // of a 32-bit position, to the place where a search begins
}

const (
	emptyWord     = 0
	tombstoneWord = 1 // of a slot that was released

	slotBits = 20
	slotMask = 1<<slotBits - 1
	maxSlots = slotMask - 1 // of a shard
	minIndex = 16           // words
)

// noIndex is the index of a shard without buckets.
var noIndex = &index{words: make([]uint32, 1), shift: 32}

// slot returns a slot by its number, or nil if its chunk was freed or came after the index.
func (x *index) slot(n int) *slot {
	if i := uint(n) / chunkSlots; i < uint(len(x.chunks)) {
		if c := x.chunks[i].Load(); c != nil {
			return &c[uint(n)%chunkSlots]
		}
	}
	return nil
}

// find returns the slot of a key and its number, with its state as read before the key was
// compared; nil if there is none.
func (x *index) find(k packedID, id string, p *period) (s *slot, state uint64, n int) {
	at := uint32(k.hash ^ p.salt)
	rest := p.mid | k.c
	for i := at >> (x.shift & 31); ; i++ {
		word := atomic.LoadUint32(&x.words[int(i)&(len(x.words)-1)])
		if word == emptyWord {
			return nil, 0, 0
		}
		if (word>>slotBits^at)<<slotBits != 0 || word == tombstoneWord {
			continue
		}
		n := int(word&slotMask) - 2
		s := x.slot(n)
		if s == nil {
			continue
		}
		state := s.load(stateWord)
		switch { // by jumps; || would be computed
		case state&countMask == 0, s.load(lowWord) != p.low, s.load(idWord) != k.a, s.load(idWord2) != k.b,
			s.load(tailWord)&keyMask != p.high|uint64(len(id)):
			continue
		}
		switch have := s.load(restWord); {
		case have == rest, len(id) > inlineID && generation(have) == rest && x.continues(have, id[headID:]):
			return s, state, n
		}
	}
}

// continues reports whether id, the part of a long ID beyond headID, is held by the slots from the
// one in rest on. It may be wrong if one is released meanwhile: the caller then finds another
// generation in the state, which is raised first.
func (x *index) continues(rest uint64, id string) bool {
	for next := int(rest & countMask); ; {
		s := x.slot(next)
		if s == nil {
			return false
		}
		for i := lowWord; i <= tailWord; i++ {
			if len(id) <= 8 {
				return s.load(i) == shortWord(id)
			}
			if s.load(i) != word(id) {
				return false
			}
			id = id[8:]
		}
		next = int(s.load(deniedWord) & countMask)
	}
}

// appendID appends the ID of a slot. The shard's mutex is held.
func (x *index) appendID(dst []byte, s *slot) []byte {
	length := int(s.load(tailWord) & lenMask)
	end, rest := len(dst)+length, s.load(restWord)
	dst = appendWord(appendWord(dst, s.load(idWord)), s.load(idWord2)>>(8*max(0, headID-length)))
	if length <= inlineID {
		return appendWord(dst, rest)[:end]
	}
	for next := rest; len(dst) < end; next = s.load(deniedWord) {
		s = x.slot(int(next & countMask))
		for i := lowWord; i <= tailWord; i++ {
			dst = appendWord(dst, s.load(i))
		}
	}
	return dst[:end]
}

// put stores a word in the first free place of its search. It reports whether that place was empty.
func (x *index) put(at uint32, n int) (wasEmpty bool) {
	for i := at >> x.shift; ; i++ {
		word := &x.words[int(i)&(len(x.words)-1)]
		if was := atomic.LoadUint32(word); was == emptyWord || was == tombstoneWord {
			atomic.StoreUint32(word, at<<slotBits|uint32(n+2))
			return was == emptyWord
		}
	}
}

// remove takes a word out, and returns how many words became empty: if the next one is empty, no
// search needs to pass this one and the tombstones before it.
func (x *index) remove(at uint32, n int) (emptied int) {
	mask := len(x.words) - 1
	i := int(at >> x.shift)
	for atomic.LoadUint32(&x.words[i&mask]) != at<<slotBits|uint32(n+2) {
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
