package weir

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/arith"
)

// maxAhead is how far the clock may lie behind that of a snapshot: a clock that was set back by
// more would not come to the windows of the snapshot for long, and they would fill the table.
const maxAhead = int64(time.Minute)

// Load counts what Save has written. A caller that has no count gets the saved one. The count of
// one that has is raised, as by [Seeder], never lowered, and the two are not added: to load one
// snapshot twice is to load it once. Windows that have ended are left out. Bucket.Denied and
// Created begin anew, and Stats counts nothing of it.
//
// It reads r to its end before it changes anything, and holds all of it in memory. It fails with
// [ErrSnapshot] for what Save did not write, or not to the end, or more than a minute after the
// limiter's clock; with the error of r; with [ErrClosed]: then nothing has changed. It fails with
// [ErrFull] if there was no room for some of the buckets, and has then loaded the others. It is
// safe beside all other calls.
func (l *Limiter) Load(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("weir: reading a snapshot: %w", err)
	}
	if l.closed.Load() {
		return l.fail(ErrClosed)
	}
	body, err := l.check(data)
	if err != nil {
		return err
	}
	d := &decoder{data: body, l: l, load: true}
	d.all()
	if d.full > 0 {
		return fmt.Errorf("%w: no room for %d of %d saved buckets", l.fail(ErrFull), d.full, d.records)
	}
	return nil
}

// check reads a snapshot without loading it, and returns the bytes between its version and its
// checksum.
func (l *Limiter) check(data []byte) (body []byte, err error) {
	end := len(data) - crc32.Size
	switch {
	case end < len(snapshotVersion) || string(data[:len(snapshotVersion)]) != snapshotVersion:
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrSnapshot, snapshotVersion)
	case crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]):
		return nil, fmt.Errorf("%w: checksum of %d bytes is wrong", ErrSnapshot, len(data))
	}
	body = data[len(snapshotVersion):end]
	d := &decoder{data: body, l: l}
	saved := d.all()
	if d.bad {
		return nil, fmt.Errorf("%w: bad record before byte %d", ErrSnapshot, end-len(d.data))
	}
	if now := l.clock.read(); saved > arith.Add(now, maxAhead) {
		return nil, fmt.Errorf("%w: it is of %v, and the clock shows %v",
			ErrSnapshot, l.clock.time(saved), l.clock.time(now))
	}
	return body, nil
}

// decoder reads a snapshot. Once something is bad, it reads zeros.
type decoder struct {
	data    []byte
	l       *Limiter
	load    bool // else what is read is only checked
	bad     bool
	records int64
	full    int // records for which there was no room
}

// int reads a number from least to most.
func (d *decoder) int(least, most int64) int64 {
	v, n := binary.Varint(d.data)
	if n <= 0 || v < least || v > most {
		d.bad = true
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) string(least int64) string {
	n := d.int(least, int64(len(d.data)))
	s := string(d.data[:min(n, int64(len(d.data)))])
	d.data = d.data[len(s):]
	return s
}

func (d *decoder) byte() byte {
	if d.bad = d.bad || len(d.data) == 0; d.bad {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

// id reads an ID and a scale, and key those and a plan.
func (d *decoder) id() (id string, scale int64) {
	id, scale = d.string(1), d.int(1, maxScale)
	d.bad = d.bad || len(id) > maxID
	return id, scale
}

func (d *decoder) key() (id string, scale int64, plan string) {
	id, scale = d.id()
	return id, scale, d.string(0)
}

// all reads the records, and returns the instant of the snapshot.
func (d *decoder) all() (saved int64) {
	saved = d.int(math.MinInt64, math.MaxInt64)
	for !d.bad {
		var err error
		switch d.byte() {
		case slotRecord:
			err = d.slot()
		case logRecord:
			err = d.log()
		case tiersRecord:
			err = d.tiers()
		case queueRecord:
			err = d.queue()
		case endRecord:
			d.bad = d.int(0, math.MaxInt64) != d.records || d.bad || len(d.data) > 0
			return saved
		default:
			d.bad = true
		}
		d.records++
		if err != nil {
			d.full++
		}
	}
	return saved
}

// apply reports whether what was read is to be loaded.
func (d *decoder) apply() bool { return !d.bad && d.load }

func (d *decoder) slot() error {
	k := kind(d.byte())
	id, scale := d.id()
	total := d.int(0, maxCount)
	if k == fixedKind {
		number := d.int(math.MinInt64, math.MaxInt64)
		w := windowAt(windowStart(number, max(scale, 1)), max(scale, 1))
		if d.bad = d.bad || w.number != number; d.apply() {
			return d.l.loadWindow(id, w, total)
		}
		return nil
	}
	d.bad = d.bad || k > counterKind
	key := periodOf(k, scale, 0)
	saved := slot{stateWord: uint64(total + 1), lowWord: key.low, restWord: key.mid, tailWord: key.high}
	saved[deniedWord] = uint64(d.int(math.MinInt64, math.MaxInt64))
	saved[usedWord] = uint64(d.int(math.MinInt64, math.MaxInt64))
	d.bad = d.bad || k == slidingKind && int64(saved[deniedWord]) > maxCount
	if d.apply() && saved.end() > d.l.clock.read() {
		return d.l.loadCaller(k, id, scale, &saved)
	}
	return nil
}

// loadWindow raises the count of a fixed window, if that has not ended.
func (l *Limiter) loadWindow(id string, w *window, total int64) error {
	k := l.buckets.pack(id)
	for at := (reading{horizon: math.MinInt64}); ; {
		at.now = l.clock.read()
		if at.now >= w.end {
			return nil
		}
		at.stamp = w.stamp(max(at.now, w.start))
		c, err := l.buckets.lock(k, id, &w.fixed, &at, true)
		if err == errEarlier {
			continue
		}
		if err != nil {
			return err
		}
		if c.fresh {
			c.shard.noteEnd(c.n, w.end)
		}
		l.extraCost.Add(c.slot.update(func(have int64) int64 { return max(have, total) }))
		c.shard.mu.Unlock()
		return nil
	}
}

// loadCaller raises the counts in the slot of a caller.
func (l *Limiter) loadCaller(k kind, id string, scale int64, saved *slot) error {
	st := &slotStore{l, k}
	h, err := st.lock(id, scale, true)
	if err != nil {
		return err
	}
	// On a clock that is behind, a caller stays at its latest instant, as it does where it was saved.
	h.now = max(h.now, min(int64(saved[usedWord]), arith.Add(h.now, maxAhead)))
	p, s := params{scale: scale}, h.state
	switch k {
	case slidingKind:
		a := &sliders{l}
		a.advance(s, p, h.now)
		was, _ := a.at(saved, scale, h.now)
		at, _ := a.at(s, scale, h.now)
		at.prev, at.cur = max(at.prev, was.prev), max(at.cur, was.cur)
		s.set(at.prev, at.cur)
	case tokenKind:
		s[usedWord], s[deniedWord] = uint64(h.now), uint64(max(s.arrival(), saved.arrival()))
	case counterKind:
		a := &anchored{}
		a.advance(s, p, h.now)
		if s.start() == noInstant { // a period goes on, also if all of it was given back
			s.set(saved.start(), count(saved[stateWord]))
		}
		a.raise(s, p, h.now, saved.end(), count(saved[stateWord]), "")
	}
	st.unlock(h.handle, changed)
	return nil
}

func (d *decoder) log() error {
	id, scale, plan := d.key()
	g := new(hitLog)
	last := int64(math.MinInt64)
	for n := d.int(0, math.MaxInt64); n > 0 && !d.bad; n-- {
		last = d.int(last, math.MaxInt64)
		(&logs{}).admit(g, params{}, last, d.int(0, math.MaxInt64-g.used), d.string(0))
	}
	s := &d.l.SlidingLog().operations
	if plan == listPlan {
		s = &d.l.List().operations
	}
	d.bad = d.bad || plan != "" && plan != listPlan
	return restore(d, s, stateKey{id, scale, plan}, g)
}

func (d *decoder) tiers() error {
	id, scale, plan := d.key()
	var tiers []Tier
	for ms := range strings.FieldsSeq(plan) {
		n, err := strconv.ParseInt(ms, 10, 64)
		d.bad = d.bad || err != nil || n > maxScale
		tiers = append(tiers, Tier{Duration: time.Duration(n) * time.Millisecond})
	}
	t, err := d.l.Tiers(tiers...)
	if d.bad = d.bad || err != nil || t.plan() != plan || t.period != time.Duration(scale*msec); d.bad {
		return nil
	}
	s, total := &sliceCounts{}, int64(0)
	last := int64(math.MinInt64)
	for n := d.int(0, math.MaxInt64); n > 0 && !d.bad; n-- {
		last = d.int(last, math.MaxInt64)
		s.counts.Push(sliceCount{last, d.int(0, math.MaxInt64-total)})
		total += s.counts.Newest().cost
	}
	t.algorithm.(*tierSums).sumUp(s, total)
	return restore(d, &t.operations, stateKey{id, scale, plan}, s)
}

func (g *hitLog) total() int64      { return g.used }
func (s *sliceCounts) total() int64 { return s.sums[len(s.sums)-1].cost }

func (g *hitLog) latest(int64) int64            { return g.hits.Newest().at }
func (s *sliceCounts) latest(scale int64) int64 { return windowStart(s.counts.Newest().slice, scale) }

// totaled is a state that knows how much it counts, once it was advanced, and the instant of its
// newest hit, until it was.
type totaled[S any] interface {
	*S
	state
	total() int64
	latest(scale int64) int64
}

// restore makes saved the state of a caller that has counted nothing, or raises the count of one
// that has.
func restore[S any, P totaled[S]](d *decoder, s *operations[S], key stateKey, saved P) error {
	if !d.apply() || saved.end(key) <= d.l.clock.read() {
		return nil
	}
	h, err := s.store.lock(key.id, key.scale, true)
	if err != nil {
		return err
	}
	p, have, latest := params{scale: key.scale}, P(h.state), saved.latest(key.scale)
	s.algorithm.advance(saved, p, h.now)
	s.algorithm.advance(h.state, p, h.now)
	switch {
	case have.total() == 0 && d.l.capacity.tryGrow(saved.size()):
		h.entry.bytes += saved.size()
		*have = *saved
		h.now = max(h.now, latest) // hits stay in order, also on a clock that is behind
	case have.total() > 0 && s.store.reserve(h.handle, ""):
		s.algorithm.raise(h.state, p, h.now, math.MaxInt64, saved.total(), "")
	default:
		err = ErrFull
	}
	s.store.unlock(h.handle, changed)
	return err
}

func (d *decoder) queue() error {
	id, scale, plan := d.key()
	next := d.int(math.MinInt64, math.MaxInt64)
	if d.bad = d.bad || plan != ""; !d.apply() || next <= d.l.clock.read() {
		return nil
	}
	st := d.l.LeakyBucket(0).store
	h, err := st.lock(id, scale, true)
	if err != nil {
		return err
	}
	if q := h.state; q.next < next {
		q.move(next)
	}
	st.unlock(h.handle, changed)
	return nil
}
