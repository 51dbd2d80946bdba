package replay

import (
	"encoding/binary"
	"math/bits"
)

// callerCache maps the text that a log has for a caller, such as an address, to the caller's
// number. A request whose text is found needs neither a key nor a look-up in the table of all
// callers. Each parser has its own cache, so it needs no lock, and fills it from the blocks that
// are returned to it. It drops entries: texts with the same place replace each other, and texts
// over maxShort bytes are not kept.
type callerCache []cachedCaller

type cachedCaller struct {
	text   shortText
	number uint32 // the caller's number plus 1; 0 if empty
}

// cacheBits is the base-2 logarithm of the places: 3 MB. With 100,000 callers nine look-ups in ten
// succeed; at half the size eight do, and a replay takes a tenth longer.
const cacheBits = 17

func newCallerCache() callerCache { return make(callerCache, 1<<cacheBits) }

// shortText is a text of at most maxShort bytes with its length, so two are equal only if their
// texts are. The zero shortText is the empty text.
type shortText struct{ low, high uint64 }

const maxShort = 15 // the length of the longest IPv4 address

// shortTextOf returns text as a shortText, or the zero shortText if it is empty or too long.
func shortTextOf(text []byte) shortText {
	n := len(text)
	if n == 0 || n > maxShort {
		return shortText{}
	}
	var padded [16]byte
	if cap(text) >= len(padded) {
		padded = [16]byte(text[:len(padded)])
	} else {
		copy(padded[:], text)
	}
	t := shortText{binary.LittleEndian.Uint64(padded[:]), binary.LittleEndian.Uint64(padded[8:])}
	if n < 8 {
		t.low, t.high = t.low&(1<<(8*n)-1), 0
	} else {
		t.high &= 1<<(8*(n-8)) - 1
	}
	t.high |= uint64(n) << 56
	return t
}

// append appends the text.
func (t shortText) append(dst []byte) []byte {
	var padded [16]byte
	binary.LittleEndian.PutUint64(padded[:], t.low)
	binary.LittleEndian.PutUint64(padded[8:], t.high)
	return append(dst, padded[:t.high>>56]...)
}

// place returns the index of the place for a text.
func (c callerCache) place(t shortText) *cachedCaller {
	high, low := bits.Mul64(t.low^0x9e3779b97f4a7c15, t.high^0xd6e8feb86659fd93)
	return &c[(high^low)>>(64-cacheBits)]
}

// find returns the number of a text's caller plus 1, or 0 if the cache does not have it.
func (c callerCache) find(t shortText) uint32 {
	if p := c.place(t); p.text == t {
		return p.number
	}
	return 0
}

// add adds the callers of a collected block.
func (c callerCache) add(numbered []unnumbered) {
	for _, u := range numbered {
		if u.text != (shortText{}) {
			*c.place(u.text) = cachedCaller{u.text, u.number + 1}
		}
	}
}
