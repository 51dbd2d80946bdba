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

// kind separates the strategies that share a table. It travels in the high bits of a scale, which a year of milliseconds
// leaves free.
type kind int64

const (
	fixed kind = iota
	sliding
)

const scaleBits = 36

func (k kind) scale(ms int64) int64 { return int64(k)<<scaleBits | ms }

func kindOf(scale int64) kind   { return kind(scale >> scaleBits) }
func scaleOf(scale int64) int64 { return scale & (1<<scaleBits - 1) }

// period is what a key has beside its id: the scale, with the kind, and the number, in 12 bytes. The number has 48 bits,
// of which it needs 45 at 1 ms and fewer above; the scale has 40, and with the kind needs 37.
type period struct {
	low  uint64 // the number, and 16 bits of the scale
	high uint32 // the rest of the scale, and 8 bits for name
}

func periodOf(scale, number int64) period {
	return period{uint64(number)<<16 | uint64(scale)&0xffff, uint32(scale>>16) << 8}
}

func (p period) scale() int64  { return int64(p.high>>8)<<16 | int64(p.low&0xffff) }
func (p period) number() int64 { return int64(p.low) >> 16 }
func (p period) kind() kind    { return kindOf(p.scale()) }
func (p period) length() int64 { return scaleOf(p.scale()) } // ms

// plus returns the period n windows later.
func (p period) plus(n int64) period { return period{p.low + uint64(n)<<16, p.high} }

// salt spreads periods over 64 bits, to be mixed into the seeded hash of an id by exclusive or. The constants are the
// fractional parts of the golden ratio and of the square roots of 2 and 3, made odd.
func (p period) salt() uint64 {
	x := p.low*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(uint64(p.high)*0x6a09e667f3bcc909, 32)
	hi, lo := bits.Mul64(x, 0xbb67ae8584caa73b)
	return hi ^ lo
}

// name is a key where its entry is: the period, and the id or how it begins. It is half of a bucket's entry, which is one
// cache line: a decision at many ids is a chain of cache misses, and the id's own bytes would be one more.
type name struct {
	low  uint64       // period.low
	text [inline]byte // of the id
	high uint32       // period.high, and the id's length, or 255 if that is more
}

const inline = 20

func nameOf(id string, of period) (n name) {
	n.low, n.high = of.low, of.named(id)
	copy(n.text[:], id)
	return n
}

// named is high with the length of id, as in a name.
func (p period) named(id string) uint32 { return p.high | uint32(min(len(id), 255)) }

func (n *name) period() period { return period{n.low, n.high &^ 0xff} }
func (n *name) size() int      { return int(n.high & 0xff) }

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

// period is that of state which is kept from window to window.
func (d *demand) period() period { return periodOf(d.scale, 0) }

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
