package slots

import "math/bits"

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

// unpackPeriod is the inverse of PeriodOf.
func unpackPeriod(low, rest, tail uint64) (k Kind, scaleMs, number int64) {
	x := low&0xffff | rest>>48<<16 | tail>>lenBits&31<<32
	return Kind(x >> scaleBits), int64(x & (1<<scaleBits - 1)), int64(low) >> 16
}
