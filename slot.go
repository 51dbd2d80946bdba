package weir

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/algorithm"
)

// slot holds one bucket in one cache line, without a pointer, so that the garbage collector has
// nothing to follow.
//
// The state word is a generation and a number, N+1; a slot is live while the latter is not 0.
// Decisions change the number by compare-and-swap, without a lock. Whatever changes the words
// beside it holds the shard's mutex, and raises the generation first. The time in which a slot has
// one generation is an epoch. A generation never returns in one slot: a chunk with a slot that has
// used up its generations is closed. So a compare-and-swap that finds the state word it expects
// proves that the key and the still words, which were read in between, were those of one epoch.
//
// The words of each kind of bucket, in its epoch:
//
//	        fixed window         sliding window         token bucket          counter
//	N       count                count of the window    ns from base to full  count of the period
//	Still1  denied hits          count of the previous  base, an instant      start of the period
//	Still2  stamp, last use      start of the window    spacing of tokens     -
//	mark    stamp, creation      serial number          serial number         serial number
//
// The places of work in flight are described in place.go.
//
// A fixed window has one epoch, since its window is in its key. So it needs no still words, and the
// two hold tallies, which hits change by compare-and-swap; each has the generation beside it, so
// that a late hit does not change those of the slot's next bucket. A bucket of another kind lives
// from period to period, and an epoch ends with each; that of a token bucket ends with a request at
// another rate.
//
// A slot that is not live may hold part of a long ID: the number of the next such slot in place of
// the first still word, beside the generation, and 40 bytes from the fourth word on.
type slot [8]uint64

// The words of a slot, with the bits of their parts, the high ones first.
const (
	stateWord  = iota // generation 16, content.N+1 48
	stillWord1        // content.Still1; in a fixed window generation 16, denied hits 48
	stillWord2        // content.Still2; in a fixed window generation 16, stamp of the last use 48
	lowWord           // period.low
	idWord            // bytes 0 to 7 of the ID
	idWord2           // bytes 8 to 15; of an ID of 8 to 15 bytes the last 8, which takes no shift
	restWord          // period.mid 16; bytes 16 to 21, or the slot in which a longer ID continues, 48
	tailWord          // mark 48; period.high 5; length of the ID 11

	deniedWord, usedWord = stillWord1, stillWord2
)

const (
	countBits      = 48
	countMask      = 1<<countBits - 1
	maxCount       = algorithm.MaxCount
	lastGeneration = 1<<16 - 1
	lenMask        = 1<<lenBits - 1
	keyMask        = 0xffff // of tailWord: what belongs to the key
	partBytes      = 40     // of a long ID in a further slot
)

// content is what a slot says of a caller: the state of its algorithm.
type content = algorithm.State

func generation(word uint64) uint64 { return word >> countBits << countBits }

func nextGeneration(state uint64) uint64 { return generation(state) + 1<<countBits }

// count returns the number in a state word that is live.
func count(state uint64) int64 { return int64(state&countMask) - 1 }

func (s *slot) load(i int) uint64 { return atomic.LoadUint64(&s[i]) }

// content returns what a slot says with this state word. It holds if the generation is still the
// same afterwards.
func (s *slot) content(state uint64) content {
	return content{N: int64(state&countMask) - 1, Still1: int64(s.load(stillWord1)),
		Still2: int64(s.load(stillWord2))}
}

// swap replaces the number in a state word. It reports false if the word is another by now.
func (s *slot) swap(state uint64, number int64) bool {
	return atomic.CompareAndSwapUint64(&s[stateWord], state, state&^countMask|uint64(number+1))
}

// kill ends the generation of a state word, and with it the bucket or its epoch: the slot is not
// live until another number is stored. It reports false if the word is another by now. The shard's
// mutex is held.
func (s *slot) kill(state uint64) bool {
	return atomic.CompareAndSwapUint64(&s[stateWord], state, nextGeneration(state))
}

// period returns the parts of a slot's period.
func (s *slot) period() (k kind, scaleMs, number int64) {
	return unpackPeriod(s.load(lowWord), s.load(restWord), s.load(tailWord))
}

// end returns the instant at which a bucket with this content expires. The shard's mutex is held.
func (s *slot) end(c content) int64 {
	k, scale, number := s.period()
	switch { // the window of a fixed window is in the key
	case s.hasPlaces():
		if c.N&(sharedBit|heldMask) == 0 {
			return noInstant
		}
		return maxInstant
	case k == fixedKind && scale > maxScale:
		return ofMilli(number)
	case k == fixedKind:
		c.Still1 = algorithm.WindowStart(number, scale)
	}
	return slotAlgorithms[k].Expires(c, scale)
}

// admitted returns what Stats adds up of a bucket with this state word: the number of places that
// were admitted, the cost of other hits, and of token buckets 0; see table.allowed.
func (s *slot) admitted(state uint64) uint64 {
	if s.hasPlaces() {
		return admittedIn(state)
	}
	k, _, _ := s.period()
	return uint64(count(state) * perCost[k])
}

// deny tallies a denied hit in a fixed window. It reports false if the slot was released since its
// state was read.
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

// touch stores the stamp of the last use of a fixed window, unless the slot was released.
func (s *slot) touch(state, stamp uint64) {
	if u := s.load(usedWord); generation(u) == generation(state) {
		atomic.CompareAndSwapUint64(&s[usedWord], u, generation(u)|stamp)
	}
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
