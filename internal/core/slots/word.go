package slots

// Word is a state word:
//
//	63        48 47                     0
//	generation   N+1; 0: there is no bucket
type Word uint64

// Live reports whether there is a bucket.
func (w Word) Live() bool { return w&countMask != 0 }

// Count returns N, of a bucket.
func (w Word) Count() int64 { return int64(w&countMask) - 1 }

// With returns the word of the same generation with the number n.
func (w Word) With(n int64) Word { return w>>CountBits<<CountBits | Word(n+1) }

// Epoch returns the generation, as a number: words of one slot with the same one are of one epoch.
func (w Word) Epoch() uint64 { return uint64(w >> CountBits) }

// next returns the word of the next generation, which is not live.
func (w Word) next() Word { return w>>CountBits<<CountBits + 1<<CountBits }

// highBits returns the part of a word above CountBits, in its place, such as a generation.
func highBits(word uint64) uint64 { return word >> CountBits << CountBits }
