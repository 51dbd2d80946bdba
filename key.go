package weir

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

const maxID = 1024 // bytes

// kind separates the strategies that share a table. It travels in the high bits of an entry's scale, which a year of
// milliseconds leaves free.
type kind int64

const (
	fixed kind = iota
	sliding
)

const scaleBits = 40

func (k kind) scale(ms int64) int64 { return int64(k)<<scaleBits | ms }

func kindOf(scale int64) kind   { return kind(scale >> scaleBits) }
func scaleOf(scale int64) int64 { return scale & (1<<scaleBits - 1) }

// ident holds an id where its entry is: up to 23 bytes in place, its length in the last byte; a longer one is cloned
// by its entry. A decision at a million ids is a chain of cache misses, and the id's own bytes would be one more.
type ident [24]byte

const inline = 23

// setID stores a copy of id, so that six bytes cut from a header of 8 KiB do not pin the header.
func (i *ident) set(id string) (long string) {
	if len(id) > inline {
		i[inline] = inline + 1
		return strings.Clone(id)
	}
	i[inline] = byte(copy(i[:inline], id))
	return ""
}

func (i *ident) is(id, long string) bool {
	if n := i[inline]; n <= inline {
		return string(i[:n]) == id
	}
	return long == id
}

func (i *ident) get(long string) string {
	if n := i[inline]; n <= inline {
		return string(i[:n])
	}
	return long
}

// salt spreads scales and windows over 64 bits, to be mixed into the seeded hash of an id by exclusive or. The
// constants are the fractional parts of the golden ratio and of the square roots of 2 and 3, made odd.
func salt(scale, number int64) uint64 {
	x := uint64(scale)*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(uint64(number)*0x6a09e667f3bcc909, 32)
	hi, lo := bits.Mul64(x, 0xbb67ae8584caa73b)
	return hi ^ lo
}

// JoinKey makes one key of several parts, such that two lists of parts never give the same key: each part is preceded
// by its length. ("a", "b:c") and ("a:b", "c") are two callers.
func JoinKey(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

// sane reports whether badArgs finds nothing wrong.
func sane(id string, scaleMs, limit int64) bool {
	return uint(len(id)-1) < maxID && uint64(scaleMs-1) < maxScale && limit >= 0
}

// badArgs returns what is wrong with an id, a scale and a limit, or nil.
func badArgs(id string, scaleMs, limit int64) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrID)
	case len(id) > maxID:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrID, len(id), maxID)
	case scaleMs <= 0 || scaleMs > maxScale:
		return fmt.Errorf("%w: %d ms, want 1 to %d", ErrScale, scaleMs, int64(maxScale))
	case limit < 0:
		return fmt.Errorf("%w: %d is negative", ErrLimit, limit)
	}
	return nil
}

// demand is a Request that was found sound.
type demand struct {
	id    string
	scale int64 // ms
	limit int64
	cost  int64 // at least 1; over limit means never
}

// never reports whether the demand can never be met.
func (d *demand) never() bool { return d.cost > d.limit }

// read checks r and takes from it what a decision needs.
func (d *demand) read(r *Request) error {
	scale := int64(r.Duration / time.Millisecond)
	if d.readAs(r, time.Duration(scale*msec), scale) && uint64(scale-1) < maxScale {
		return nil
	}
	if r.Duration%time.Millisecond != 0 {
		return fmt.Errorf("%w: %v is not a whole number of milliseconds", ErrScale, r.Duration)
	}
	return badArgs(d.id, scale, 0)
}

// readAs is read for a duration that is known to be sound, and scale ms. It reports false where read may find something
// wrong. It is inlined, and spares most decisions a division and two calls.
func (d *demand) readAs(r *Request, known time.Duration, scale int64) bool {
	d.id, d.scale = r.Key, scale // one by one: a literal is copied, which stalls
	d.limit = int64(min(r.Limit, math.MaxInt64))
	d.cost = int64(min(max(r.Cost, 1), math.MaxInt64))
	return r.Duration == known && uint(len(r.Key)-1) < maxID
}
