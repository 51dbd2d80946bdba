package slots

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
)

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

const (
	// InlineID is the length of the longest ID that one slot holds, and headID where a longer one goes
	// on in other slots.
	InlineID = 22
	headID   = 16
)

// idBytes is an ID, or a part of one.
type idBytes interface{ string | []byte }

// word returns the first 8 bytes of s. The compiler makes one load of it.
func word[T idBytes](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// shortWord is word for a string of at most 8 bytes, padded with zeros.
func shortWord[T idBytes](s T) (w uint64) {
	for i := len(s) - 1; i >= 0; i-- {
		w = w<<8 | uint64(s[i])
	}
	return w
}

// appendWord appends the bytes of w, the inverse of word.
func appendWord(dst []byte, w uint64) []byte { return binary.LittleEndian.AppendUint64(dst, w) }

// Hasher spreads IDs over shards. Its keys are secret, so that no client can aim at one shard. IDs
// of up to InlineID bytes are hashed from their words by multiplication, as hash/maphash does on
// processors without AES instructions, which saves three calls.
type Hasher struct {
	seed maphash.Seed
	keys [3]uint64
	Mask uint64 // of the bits that count: all, except in tests of a broken hash
}

// NewHasher returns a Hasher with keys of its own.
func NewHasher() Hasher {
	keys := [...]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}
	return Hasher{seed: maphash.MakeSeed(), keys: keys, Mask: math.MaxUint64}
}

// Packed holds the ID words of a slot for up to InlineID bytes, or for a longer head, and the
// hash.
type Packed struct{ a, b, c, Hash uint64 }

// Pack returns the words of an ID.
func (h *Hasher) Pack(id string) Packed {
	if len(id) <= InlineID {
		return h.PackShort(id)
	}
	return Packed{word(id), word(id[8:]), 0, maphash.String(h.seed, id) & h.Mask}
}

// PackShort is Pack for an ID of at most InlineID bytes. It calls nothing, and needs no stack.
func (h *Hasher) PackShort(id string) Packed {
	var a, b, c uint64
	switch n := len(id); {
	case n > 16:
		a, b, c = word(id), word(id[8:]), word(id[n-8:])>>(8*(24-n)&63)
	case n >= 8:
		a, b = word(id), word(id[n-8:])
	default:
		a = shortWord(id)
	}
	hi, lo := bits.Mul64(a^h.keys[0], b^h.keys[1])
	if c != 0 {
		hi, lo = bits.Mul64(hi^c, lo^h.keys[2])
	}
	hi, lo = bits.Mul64(hi^uint64(len(id)), lo^h.keys[2])
	return Packed{a, b, c, (hi ^ lo) & h.Mask}
}

// Hash returns the hash of an ID.
func (h *Hasher) Hash(id string) uint64 { return h.Pack(id).Hash }

// PackBytes is Pack for an ID of more than InlineID bytes that is no string.
func (h *Hasher) PackBytes(id []byte) Packed {
	return Packed{word(id), word(id[8:]), 0, h.hashBytes(id)}
}

// hashBytes is Hash without an allocation.
func (h *Hasher) hashBytes(id []byte) uint64 {
	if len(id) > InlineID {
		return maphash.Bytes(h.seed, id) & h.Mask
	}
	return h.Hash(string(id))
}
