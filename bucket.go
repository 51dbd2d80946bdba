package weir

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	msec       = int64(time.Millisecond)
	maxScale   = 365 * 24 * 60 * 60 * 1000 // ms: one year
	maxInstant = math.MaxInt64
)

// floorDiv returns the quotient and remainder of a/b rounded toward negative infinity, so that 0 <= rem < b. b > 0.
// It is total: no a overflows.
func floorDiv(a, b int64) (quo, rem int64) {
	quo, rem = a/b, a%b
	if rem < 0 {
		quo--
		rem += b
	}
	return quo, rem
}

// millis returns the millisecond that holds the instant ns.
func millis(ns int64) int64 {
	if ns >= 0 {
		return int64(uint64(ns) / uint64(msec)) // cheaper than the signed division
	}
	ms, _ := floorDiv(ns, msec)
	return ms
}

// edge returns when window number of length ms starts. It saturates.
func edge(number, length int64) int64 {
	switch far := maxInstant / msec / length; {
	case number > far:
		return maxInstant
	case number < -far:
		return math.MinInt64
	}
	return number * length * msec
}

// window is one window of one scale. Windows are aligned to the Unix epoch: window n of scale s starts n*s
// milliseconds after it. Instants saturate at the ends of int64.
type window struct {
	scale      int64 // ms, and the kind
	duration   time.Duration
	period     period
	salt, last uint64    // of the keys of this window, and of the one before
	grain      uint      // see stamp
	start, end int64     // instants: the window is [start, end)
	expires    time.Time // when what it counts is forgotten: its end or, if the next window looks back on it, that one's
}

// windowAt returns the window of scale that holds the instant now; expires is left to the caller.
func windowAt(now, scale int64) *window {
	length := scaleOf(scale)
	ms, frac := floorDiv(now, msec)
	number, into := floorDiv(ms, length)
	of := periodOf(scale, number)
	return &window{
		scale:    scale,
		duration: time.Duration(length * msec),
		period:   of,
		salt:     of.salt(),
		last:     of.plus(-1).salt(),
		grain:    grain(length),
		start:    addSat(now, -(into*msec + frac)),
		end:      addSat(now, (length-into)*msec-frac),
	}
}

// lasts returns the instant at which what the window counts is forgotten.
func (w *window) lasts() int64 {
	if kindOf(w.scale) == sliding {
		return addSat(w.end, scaleOf(w.scale)*msec)
	}
	return w.end
}

// stamp returns now, which the window holds, as its buckets keep it: in milliseconds from the window's start or, where 32
// bits cannot count those (49 days), in units of up to 8.
func (w *window) stamp(now int64) uint32 {
	return uint32(uint64(now-w.start) / uint64(msec) >> (w.grain & 63)) // a shift known to be below 64 costs less
}

// at is the inverse of stamp: when the unit began.
func (p period) at(stamp uint32) int64 {
	length := p.length()
	return addSat(edge(p.number(), length), int64(stamp)<<grain(length)*msec)
}

// grain returns the unit of the stamps in windows of length ms, as a power of two of milliseconds.
func grain(length int64) uint { return uint(max(0, bits.Len64(uint64(length-1))-32)) }

// holds reports whether now falls in the window. The last instant that can be counted belongs to the window it ends.
func (w *window) holds(now int64) bool {
	return w.start <= now && (now < w.end || w.end == maxInstant)
}

// bucket is the state of one caller in one window. Its counts are 64 bits wide and only ever grow by what was
// admitted, which a limit below 1<<63 bounds. What it keeps of time is relative to its window, so that with its key it
// fits a cache line.
//
// Every count is made in the window that the key names, by a goroutine that read the clock in that window, and there is
// never a second bucket for a window whose bucket was swept. The first half is find's; the second is what the unborn
// state is for: a goroutine may stall between reading the clock and inserting its new bucket for so long that the
// window's true bucket was filled, ended and swept meanwhile. So a bucket is inserted unborn, and whoever finds it so
// reads the clock again: if the window still runs, no sweep can have taken an earlier bucket of it, and the bucket is
// born; if not, it never will be.
type bucket struct {
	count    atomic.Int64  // admitted cost; below zero unborn, gone or sealed
	denied   atomic.Uint64 // hits denied
	modified atomic.Uint32 // a window's stamp
	created  atomic.Uint32 // fixed: a stamp, set at birth; sliding: what prior and learn say
}

const (
	unborn = -1 // inserted, not yet used
	gone   = -2 // reset: whoever still holds the bucket looks again
	sealed = -3 // and below, down from it by the admitted cost: see seal
)

// admitted returns the admitted cost, whatever the state of b.
func (b *bucket) admitted() int64 {
	n := b.count.Load()
	if n <= sealed {
		return sealed - n
	}
	return max(0, n)
}

// seal returns the admitted cost and sees to it that nothing more is admitted: the next window has begun to count on
// it. A goroutine that read the clock in the window of b and comes too late looks again.
func (b *bucket) seal() int64 {
	for {
		n := b.count.Load()
		if n <= sealed || n == gone {
			return b.admitted()
		}
		if b.count.CompareAndSwap(n, sealed-max(0, n)) {
			return max(0, n)
		}
	}
}

// take admits cost if count allows it under limit, and returns the admitted cost it found, or left. A negative count
// means that b was not live, and nothing was decided. cost <= limit < 1<<63.
func (b *bucket) take(cost, limit int64, stamp uint32) (count int64, ok bool) {
	for {
		switch count, ok = b.tryTake(cost, limit); {
		case ok:
			b.touch(stamp)
			return count, true
		case count < 0:
			return count, false
		case count > limit-cost:
			b.deny(stamp)
			return count, false
		}
	}
}

// tryTake is one attempt of take, small enough to be inlined, as are touch and deny.
func (b *bucket) tryTake(cost, limit int64) (count int64, ok bool) {
	n := b.count.Load()
	if n >= 0 && n <= limit-cost && b.count.CompareAndSwap(n, n+cost) {
		return n + cost, true
	}
	return n, false
}

// deny tallies a denial.
func (b *bucket) deny(stamp uint32) {
	b.denied.Add(1)
	b.touch(stamp)
}

// touch stores when b was last modified. The load is nearly free, the store is not.
func (b *bucket) touch(stamp uint32) {
	if b.modified.Load() != stamp {
		b.modified.Store(stamp)
	}
}

// birth makes an unborn bucket of kind k live.
func (b *bucket) birth(k kind, stamp uint32) {
	if k == fixed {
		b.created.Store(stamp)
	}
	b.modified.Store(stamp)
	b.count.CompareAndSwap(unborn, 0)
}

// prior returns what the window before the one of b admitted, if b has learned that, or a negative number. It is kept in
// place of created, of which a sliding window has no use, and saves a decision the look-up of the bucket before.
func (b *bucket) prior() int64 { return int64(int32(b.created.Load())) - 1 }

// learn has b remember what the window before admitted, if 31 bits can count it. That is sealed, and so changes by a
// refund only, or if that bucket is yet to be born: both doubt it.
func (b *bucket) learn(prior int64) {
	if prior < math.MaxInt32 {
		b.created.CompareAndSwap(0, uint32(prior+1))
	}
}

// doubt has b forget what it has learned, and learn no more.
func (b *bucket) doubt() { b.created.Store(math.MaxUint32) }

// add moves the count up by cost, never past the largest int64. It reports false, and does nothing, if b is not live.
func (b *bucket) add(cost int64, stamp uint32) (moved int64, ok bool) {
	return b.move(stamp, func(n int64) int64 { return addSat(n, cost) })
}

// raise moves the count up to at least to, as add does.
func (b *bucket) raise(to int64, stamp uint32) (moved int64, ok bool) {
	return b.move(stamp, func(n int64) int64 { return max(n, to) })
}

func (b *bucket) move(stamp uint32, to func(int64) int64) (moved int64, ok bool) {
	for {
		n := b.count.Load()
		if n < 0 {
			return 0, false
		}
		if m := to(n); b.count.CompareAndSwap(n, m) {
			b.touch(stamp)
			return m - n, true
		}
	}
}

// refund moves the count down by cost, not below zero, sealed or not, and returns by how much.
func (b *bucket) refund(cost int64) (back int64) {
	for {
		n := b.count.Load()
		if n == unborn || n == gone {
			return 0
		}
		left := n
		if n <= sealed {
			left = sealed - n
		}
		back = min(cost, left)
		to := n - back
		if n <= sealed {
			to = n + back
		}
		if b.count.CompareAndSwap(n, to) {
			return back
		}
	}
}

// over implements lifecycle: a window's bucket may go when the window ended or, for a strategy that looks back on the
// previous window, when the next one did.
func (b *bucket) over(of period) int64 {
	ends := of.number() + 1
	if of.kind() == sliding {
		ends++
	}
	return edge(ends, of.length())
}

// bury implements lifecycle. Nothing marks b: its window is over, so nobody looks for it again, and a goroutine that
// still holds it goes on counting in the past, on the one bucket that window ever had.
func (b *bucket) bury(of period, over, now, grace int64) bool {
	if now < over {
		return false
	}
	coarse := (1<<grain(of.length()) - 1) * msec // by so much it may have been later than at tells
	return now >= addSat(of.at(b.modified.Load()), addSat(coarse, grace))
}

// settled implements lifecycle.
func (b *bucket) settled() (allowed, denied uint64) {
	return uint64(b.admitted()), b.denied.Load()
}

// Bucket is a snapshot of what one id has used in one window.
type Bucket struct {
	ID       string
	Scale    time.Duration // of the window
	Number   int64         // of the window: Unix time divided by Scale, rounded down
	Count    uint64        // cost admitted
	Denied   uint64        // hits denied; they are in no count
	Created  time.Time     // first hit, to the millisecond or, if Scale is over 49 days, to 8; zero if there was none
	Modified time.Time     // last hit, admitted or denied, as exact as Created
	Ends     time.Time     // when the window is over
}
