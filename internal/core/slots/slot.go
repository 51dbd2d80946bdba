package slots

import (
	"math/bits"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/algorithm"
)

// Slot holds one bucket in one cache line, without a pointer, so that the garbage collector has
// nothing to follow.
//
// Decisions change the number in the state word, without a lock. Whatever changes the words beside
// it holds the shard's mutex, and raises the generation first.
//
// In a tallied shard a bucket has one epoch. It needs no still words, and the two hold tallies:
// denied hits, and the stamp of the last use. Hits change these by compare-and-swap; each has the
// generation beside it, so that a late hit does not change those of the slot's next bucket.
//
// A slot that is not live may hold part of a long ID: the number of the next such slot in place of
// the first still word, beside the generation, and 40 bytes from the fourth word on.
type Slot [8]uint64

// The words of a slot, with the bits of their parts, the high ones first.
const (
	stateWord  = iota // a Word: generation 16, Content.N+1 48
	stillWord1        // Content.Still1; tallied: generation 16, denied hits 48
	stillWord2        // Content.Still2; tallied: generation 16, stamp of the last use 48
	lowWord           // Period.low
	idWord            // bytes 0 to 7 of the ID
	idWord2           // bytes 8 to 15; of an ID of 8 to 15 bytes the last 8, which takes no shift
	restWord          // Period.mid 16; bytes 16 to 21, or the slot in which a longer ID continues, 48
	tailWord          // mark 48; Period.high 5; length of the ID 11

	deniedWord, usedWord = stillWord1, stillWord2
)

const (
	// CountBits is how long the numbers in a slot are, such as its N and a stamp.
	CountBits      = 48
	countMask      = 1<<CountBits - 1
	lastGeneration = 1<<16 - 1
	lenMask        = 1<<lenBits - 1
	keyMask        = 0xffff // of tailWord: what belongs to the key
	partBytes      = 40     // of a long ID in a further slot
	chunkSlots     = 128
)

// Content is what a slot says of a caller, and its algorithm calls the state.
type Content = algorithm.State

func (s *Slot) load(i int) uint64 { return atomic.LoadUint64(&s[i]) }

// State returns the state word.
func (s *Slot) State() Word { return Word(s.load(stateWord)) }

// Content returns what a slot says with this state word. It holds if the generation is still the
// same afterwards.
func (s *Slot) Content(state Word) Content {
	return Content{N: state.Count(), Still1: int64(s.load(stillWord1)),
		Still2: int64(s.load(stillWord2))}
}

// Swap replaces a state word. It reports false if the word is another by now.
func (s *Slot) Swap(state, next Word) bool {
	return atomic.CompareAndSwapUint64(&s[stateWord], uint64(state), uint64(next))
}

// Add adds n to the number of a bucket that cannot be released meanwhile, and returns the state
// word then.
func (s *Slot) Add(n uint64) Word { return Word(atomic.AddUint64(&s[stateWord], n)) }

// kill ends the generation of a state word, and with it the bucket or its epoch: the slot is not
// live until another number is stored. It reports false if the word is another by now. The shard's
// mutex is held.
func (s *Slot) kill(state Word) bool { return s.Swap(state, state.next()) }

// Mark returns what tells the bucket from others of its key: a serial number or, in a tallied
// shard, the stamp of its creation.
func (s *Slot) Mark() uint64 { return s.load(tailWord) >> 16 }

// IDLen returns the length of the ID.
func (s *Slot) IDLen() int { return int(s.load(tailWord) & lenMask) }

// Denied returns the tally of denied hits.
func (s *Slot) Denied() uint64 { return s.load(deniedWord) & countMask }

// LastUse returns the stamp of the last use.
func (s *Slot) LastUse() uint64 { return s.load(usedWord) & countMask }

// Period returns the parts of a slot's period, as PeriodOf has packed them.
func (s *Slot) Period() (k Kind, scaleMs, number int64) {
	low := s.load(lowWord)
	x := low&0xffff | s.load(restWord)>>48<<16 | s.load(tailWord)>>lenBits&31<<32
	return Kind(x >> scaleBits), int64(x & (1<<scaleBits - 1)), int64(low) >> 16
}

// Deny tallies a denied hit. It reports false if the slot was released since its state was read.
func (s *Slot) Deny(state Word) bool {
	for {
		d := s.load(deniedWord)
		if Word(d).Epoch() != state.Epoch() {
			return false
		}
		if d&countMask == countMask || atomic.CompareAndSwapUint64(&s[deniedWord], d, d+1) {
			return true
		}
	}
}

// Touch stores the stamp of the last use, unless the slot was released.
func (s *Slot) Touch(state Word, stamp uint64) {
	if u := s.load(usedWord); Word(u).Epoch() == state.Epoch() {
		atomic.CompareAndSwapUint64(&s[usedWord], u, highBits(u)|stamp)
	}
}

// write stores a word of a slot that is not live. No search ends at a slot whose state is still
// zero, and a plain store is cheaper by 8 ns.
func (s *Slot) write(i int, v uint64) {
	if s.load(stateWord) == 0 {
		s[i] = v
		return
	}
	atomic.StoreUint64(&s[i], v)
}

// chunk is the unit in which slots are allocated. It never moves.
type chunk [chunkSlots]Slot

// chunkInfo describes a chunk. It is guarded by the shard's mutex.
type chunkInfo struct {
	free     [chunkSlots / 64]uint64 // a bit for each slot that is free
	earliest int64                   // at most the instant at which the first of its buckets expires
	closed   bool                    // a generation is used up: slots are no longer handed out
}

func (c *chunkInfo) empty() bool { return c.free == [len(c.free)]uint64{^uint64(0), ^uint64(0)} }

// Kind separates the buckets that share a table: 0 to 3.
type Kind int64

// Period is the part of a key beside the ID: kind, scale and number, as the words of a slot hold
// them.
type Period struct {
	low  uint64 // number 48 (windows of 1 ms need 45), scale 16
	mid  uint64 // scale 16, above 48 zero bits
	high uint64 // kind 2 and scale 3, above 11 zero bits
	Salt uint64 // spreads the periods of one ID over its shard
}

const (
	scaleBits = 35
	lenBits   = 11
)

// PeriodOf returns a period. The number has up to 48 bits, with its sign.
func PeriodOf(k Kind, scaleMs, number int64) Period {
	x := uint64(k)<<scaleBits | uint64(scaleMs)
	p := Period{low: uint64(number)<<16 | x&0xffff, mid: x >> 16 << 48, high: x >> 32 << lenBits}
	// The fractional parts of the golden ratio and of the square roots of 2 and 3, made odd.
	mixed := p.low*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(x*0x6a09e667f3bcc909, 32)
	hi, lo := bits.Mul64(mixed, 0xbb67ae8584caa73b)
	p.Salt = hi ^ lo
	return p
}
