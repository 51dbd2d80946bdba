package weir

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/arith"
)

// slot holds one bucket in one cache line, without a pointer, so that the garbage collector has
// nothing to follow. Its words change under the shard's mutex, except that hits of a live fixed
// window update stateWord, deniedWord and usedWord without it.
//
// A slot is live while the count in its state word is not zero. Releasing it raises the generation
// in the state word, then those of the other two, and only then may another bucket write its key
// there. A generation never returns in one slot: a chunk with a slot that has used all of its own
// is closed. So a compare-and-swap that finds the state word it expects proves that the slot was
// not released since the word was read, and that the key compared in between was that bucket's.
//
// A slot that is not live may hold part of a long ID: the number of the next such slot in place of
// the denied hits, beside the generation, and 40 bytes from the fourth word on.
type slot [8]uint64

// The words of a slot, with the bits of their parts, the high ones first. In place of denied hits a
// sliding window has the count of the window before, a token bucket its arrival time, a counter the
// start of its period; all three have the instant of the last use in usedWord, without a
// generation, since they change only under the mutex.
const (
	stateWord  = iota // generation 16, count+1 48
	deniedWord        // generation 16, denied hits 48
	usedWord          // generation 16, stamp of the last use 48
	lowWord           // period.low
	idWord            // bytes 0 to 7 of the ID
	idWord2           // bytes 8 to 15; of an ID of 8 to 15 bytes the last 8, which takes no shift
	restWord          // period.mid 16; bytes 16 to 21, or the slot in which a longer ID continues, 48
	tailWord          // stamp of creation 48; period.high 5; length of the ID 11
)

const (
	countBits      = 48
	countMask      = 1<<countBits - 1
	maxCount       = countMask - 1 // a slot's count is stored plus one
	lastGeneration = 1<<16 - 1
	lenMask        = 1<<lenBits - 1
	keyMask        = 0xffff // of tailWord: what belongs to the key
	partBytes      = 40     // of a long ID in a further slot
)

func generation(word uint64) uint64 { return word >> countBits << countBits }

func (s *slot) load(i int) uint64 { return atomic.LoadUint64(&s[i]) }

// differs returns 0 if the key of a slot, but for its restWord, has these words: low is period.low,
// and tail period.high with the length. One test of them all takes fewer instructions than five.
func (s *slot) differs(low uint64, k packedID, tail uint64) uint64 {
	return (s.load(lowWord) ^ low) | (s.load(idWord) ^ k.a) | (s.load(idWord2) ^ k.b) |
		(s.load(tailWord)&keyMask ^ tail)
}

// count returns the admitted cost in a state word that is live.
func count(state uint64) int64 { return int64(state&countMask) - 1 }

// update changes the count, within 0 and maxCount, and returns by how much. The shard's mutex is
// held; hits without it go on.
func (s *slot) update(to func(have int64) int64) (moved int64) {
	for {
		state := s.load(stateWord)
		have := count(state)
		moved = min(max(to(have), 0), maxCount) - have
		if atomic.CompareAndSwapUint64(&s[stateWord], state, state+uint64(moved)) {
			return moved
		}
	}
}

// deny tallies a denied hit. It reports false if the slot was released since its state was read.
func (s *slot) deny(state uint64) bool {
	for {
		d := s.load(deniedWord)
		if generation(d) != generation(state) {
			return false
		}
		if d&countMask == countMask || atomic.CompareAndSwapUint64(&s[deniedWord], d, d+1) {
			return true
		}
	}
}

// touch stores the stamp of the last use, unless the slot was released.
func (s *slot) touch(state, stamp uint64) {
	if u := s.load(usedWord); generation(u) == generation(state) {
		atomic.CompareAndSwapUint64(&s[usedWord], u, generation(u)|stamp)
	}
}

// set stores a count, and the word in place of denied hits, where no hit comes without the mutex.
func (s *slot) set(second, count int64) {
	s[deniedWord] = uint64(second)
	s[stateWord] = generation(s[stateWord]) | uint64(count+1)
}

// end returns the instant at which the bucket expires. The shard's mutex is held.
func (s *slot) end() int64 {
	k, scale, number := unpackPeriod(s.load(lowWord), s.load(restWord), s.load(tailWord))
	switch k {
	case tokenKind:
		return max(s.arrival(), int64(s[usedWord]))
	case counterKind:
		return max(arith.Add(s.start(), scale*msec), int64(s[usedWord]))
	case slidingKind:
		number, _ := arith.FloorDiv(int64(s[usedWord]), scale*msec)
		return windowStart(number+2, scale)
	}
	return windowStart(number+1, scale)
}

// chunk is the unit in which slots are allocated. It never moves.
type chunk [chunkSlots]slot

const chunkSlots = 128

// chunkInfo describes a chunk. It is guarded by the shard's mutex.
type chunkInfo struct {
	free     [chunkSlots / 64]uint64 // a bit for each slot that is free
	earliest int64                   // at most the instant at which the first of its buckets expires
	closed   bool                    // a generation is used up: slots are no longer handed out
}

func (c *chunkInfo) empty() bool { return c.free == [len(c.free)]uint64{^uint64(0), ^uint64(0)} }
