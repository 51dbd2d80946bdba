// Package ids turns IDs into the words that a slot holds of them, and into hashes that no client
// can foresee.
package ids

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
)

// The lengths, in bytes, at which the storage of an ID changes.
const (
	Inline = 22 // of the longest ID that one slot holds
	Head   = 16 // of the part of a longer one that is in its slot; the rest is in others
)

// Bytes is an ID, or a part of one.
type Bytes interface{ string | []byte }

// Word returns the first 8 bytes of s. The compiler makes one load of it.
func Word[T Bytes](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// ShortWord is Word for a string of at most 8 bytes, padded with zeros.
func ShortWord[T Bytes](s T) (w uint64) {
	for i := len(s) - 1; i >= 0; i-- {
		w = w<<8 | uint64(s[i])
	}
	return w
}

// AppendWord appends the bytes of w, the inverse of Word.
func AppendWord(dst []byte, w uint64) []byte { return binary.LittleEndian.AppendUint64(dst, w) }

// Hasher spreads IDs over shards. Its keys are secret, so that no client can aim at one shard. IDs
// of up to Inline bytes are hashed from their words by multiplication, as hash/maphash does on
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

// Packed holds the words of an ID of up to Inline bytes, or of the head of a longer one, and the
// hash.
type Packed struct{ A, B, C, Hash uint64 }

// Pack returns the words of an ID.
func (h *Hasher) Pack(id string) Packed {
	if len(id) <= Inline {
		return h.PackShort(id)
	}
	return Packed{Word(id), Word(id[8:]), 0, maphash.String(h.seed, id) & h.Mask}
}

// PackShort is Pack for an ID of at most Inline bytes. It calls nothing, and needs no stack.
func (h *Hasher) PackShort(id string) Packed {
	var a, b, c uint64
	switch n := len(id); {
	case n > 16:
		a, b, c = Word(id), Word(id[8:]), Word(id[n-8:])>>(8*(24-n)&63)
	case n >= 8:
		a, b = Word(id), Word(id[n-8:])
	default:
		a = ShortWord(id)
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

// PackBytes is Pack for an ID of more than Inline bytes that is no string.
func (h *Hasher) PackBytes(id []byte) Packed {
	return Packed{Word(id), Word(id[8:]), 0, h.HashBytes(id)}
}

// HashBytes is Hash without an allocation.
func (h *Hasher) HashBytes(id []byte) uint64 {
	if len(id) > Inline {
		return maphash.Bytes(h.seed, id) & h.Mask
	}
	return h.Hash(string(id))
}
