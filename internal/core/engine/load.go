package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/snapshot"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// Loader loads records into stores.
type Loader struct {
	*Stores
	Series func(windows.SeriesName) (*windows.Series, error) // of a limit
}

// MaxAhead is how far the clock may lie behind that of a snapshot: a clock that was set back by
// more would not come to the windows of the snapshot for long, and they would fill the table.
const MaxAhead = int64(time.Minute)

// Record is a saved bucket, from its type on.
type Record []byte

// Read reads a snapshot, checks its records, and changes nothing. It also returns the instant that
// was saved.
func (s *Loader) Read(data []byte) (records []Record, saved int64, err error) {
	r, err := snapshot.Open(data, Version)
	if err != nil {
		return nil, 0, err
	}
	d := &decoder{Reader: r, of: s}
	saved = d.Any()
	for !d.Bad {
		data := d.Data
		if len(data) > 0 && data[0] == endRecord {
			d.Data = data[1:]
			d.Bad = d.Int(0, math.MaxInt64) != int64(len(records)) || d.Bad || len(d.Data) > 0
			break
		}
		_ = d.record() // fails only if it loads
		records = append(records, data[:len(data)-len(d.Data)])
	}
	if d.Bad {
		err = fmt.Errorf("bad record before byte %d", d.Offset())
	}
	return records, saved, err
}

// Load merges a record. It fails with room.ErrFull, and as Series does.
func (s *Loader) Load(r Record) error { return s.decoder(r, toLoad).record() }

// decoder returns the decoder of a record.
func (s *Loader) decoder(r Record, to intent) *decoder {
	return &decoder{Reader: snapshot.Reader{Data: r}, of: s, to: to}
}

// intent is why a record is read.
type intent uint8

const (
	toCheck intent = iota
	toRank
	toLoad
)

// decoder reads a snapshot. Once something is bad, it reads zeros.
type decoder struct {
	snapshot.Reader
	of      *Loader
	to      intent
	limit   windows.SeriesName // of the record, if it is one of a limit
	kind    int                // of strategy: the kind of a slot, or the type of another record
	counted int64              // to rank the records of a kind: a measure of how much is counted
}

// record reads one record. It fails only if it loads.
func (d *decoder) record() error {
	t := d.Byte()
	d.limit = windows.SeriesName{}
	if t == limitRecord {
		d.limit.Name, d.limit.Numbers = d.Text(0), d.Text(0)
		d.Bad = d.Bad || max(len(d.limit.Name), len(d.limit.Numbers)) > bounds.MaxKey
		t = d.Byte()
	}
	d.kind = int(t)
	switch t {
	case slotRecord:
		return d.slot()
	case calendarRecord:
		return d.calendar()
	case logRecord:
		return d.log()
	case tiersRecord:
		return d.tiers()
	case queueRecord, spacedRecord:
		return d.queue(t == spacedRecord)
	case flightRecord:
		return d.flight()
	}
	d.Bad = true
	return nil
}

// id reads an ID and a scale.
func (d *decoder) id() (id string, scale int64) {
	id, scale = d.Text(1), d.Int(1, bounds.MaxScale)
	d.Bad = d.Bad || len(id) > bounds.MaxKey
	return id, scale
}

// key reads the key of a state, without its series.
func (d *decoder) key() (k states.Key) {
	k.ID, k.Scale = d.id()
	k.Plan = d.Text(0)
	return k
}

func (d *decoder) slot() error {
	k := slots.Kind(d.Byte())
	d.Bad = d.Bad || k >= Kinds
	if d.Bad {
		return nil
	}
	id, scale := d.id()
	since := algorithm.Never
	saved := slots.Content{N: d.Int(0, algorithm.MaxCount), Still1: d.Any()}
	if k == FixedKind {
		// The record has the window's number here, and Expires looks for its start; the slot has neither.
		number := saved.Still1
		// A clock that is behind may not have come to the window yet: it is restored all the same.
		since = algorithm.WindowStart(number, max(scale, 1))
		saved.Still1 = since
		d.Bad = d.Bad || windows.At(since, max(scale, 1)).Number != number
	} else {
		saved.Still2 = d.Any()
	}
	d.Bad = d.Bad || k == SlidingKind && saved.Still1 > algorithm.MaxCount
	if d.Bad {
		return nil
	}
	s := d.of.Slots[k]
	d.kind = int(k)
	switch d.to {
	case toCheck:
		return nil
	case toRank:
		// The total is the count, or of a token bucket the tokens that are missing. One of an older
		// release has no spacing: it is given that of a million tokens in a scale.
		all := Params{Scale: scale, Limit: algorithm.MaxCount, Cost: 1, Each: scale}
		v, _ := s.Algorithm.Decide(saved, all, d.of.Clock.Read())
		d.counted = v.Total
		return nil
	}
	end := s.Algorithm.Expires(saved, scale)
	if k == FixedKind && d.limit != (windows.SeriesName{}) {
		d.limit.Length = scale
	}
	in, err := d.join(&s.Series)
	if err != nil {
		return err
	}
	if k == FixedKind && in != nil {
		scale = in.Scale()
	}
	return s.merge(id, scale, since, end, saved)
}

// join sets the number of the series in a key, if the record is of a limit. It returns the series,
// or nil.
func (d *decoder) join(number *int64) (*windows.Series, error) {
	if d.limit == (windows.SeriesName{}) {
		return nil, nil
	}
	in, err := d.of.Series(d.limit)
	if err == nil {
		*number = in.Number
	}
	return in, err
}

// calendar reads a bucket of a calendar. If the rules of the zone were changed, its count goes to
// the window that now holds the end of the one that it was counted in.
func (d *decoder) calendar() error {
	d.limit.Calendar = d.Text(1)
	d.Bad = d.Bad || len(d.limit.Calendar) > bounds.MaxKey
	if d.Bad {
		return nil
	}
	_, err := d.of.Windows.Calendar(d.limit.Calendar, nil)
	id, saved := d.Text(1), slots.Content{N: d.Int(0, algorithm.MaxCount)}
	end := algorithm.WindowStart(d.Any(), 1000)
	d.counted = saved.N
	d.Bad = d.Bad || err != nil || len(id) > bounds.MaxKey
	if d.Bad || d.to != toLoad {
		return nil
	}
	s := d.of.Slots[FixedKind]
	in, err := d.join(&s.Series)
	if err != nil {
		return err
	}
	return s.merge(id, in.Scale(), end-1, end, saved)
}

// log reads a log, or a list.
func (d *decoder) log() error {
	key := d.key()
	switch key.Plan {
	case d.of.Logs.Plan:
		g := new(algorithm.Log)
		d.hits(g)
		return restore(d, d.of.Logs, key, g)
	case d.of.Lists.Plan:
		g := new(algorithm.Listed)
		d.hits(&g.Log)
		return restore(d, d.of.Lists, key, g)
	}
	d.Bad = true
	return nil
}

// hits reads the hits of encoder.log.
func (d *decoder) hits(g *algorithm.Log) {
	last := int64(math.MinInt64)
	for n := d.Int(0, math.MaxInt64); n > 0 && !d.Bad; n-- {
		last = d.Int(last, math.MaxInt64)
		g.Add(last, d.Int(0, math.MaxInt64-g.Used()), d.Text(0))
	}
}

func (d *decoder) tiers() error {
	key := d.key()
	a, ok := algorithm.PlannedTiers(key.Plan)
	d.Bad = d.Bad || !ok || a.Slice() != key.Scale
	if d.Bad {
		return nil
	}
	of, s := d.of.Tiers, new(algorithm.Slices)
	of.Algorithm = a
	a.Advance(s, Params{}, algorithm.Never) // as before an admission, at an instant before all of them
	last := int64(math.MinInt64)
	for n := d.Int(0, math.MaxInt64); n > 0 && !d.Bad; n-- {
		last = d.Int(last, math.MaxInt64)
		cost := d.Int(0, math.MaxInt64-s.Used())
		a.Admit(s, Params{Cost: cost}, algorithm.WindowStart(last, key.Scale), "")
	}
	return restore(d, of, key, s)
}

// queue reads a bucket: spaced, or as an older release has saved it, without its spacing.
func (d *decoder) queue(spaced bool) error {
	key := d.key()
	saved := algorithm.LeakyBucket{Next: d.Any()}
	if spaced {
		saved.Each = d.Int(0, bounds.MaxScale*int64(time.Millisecond))
	}
	now := d.of.Clock.Read()
	if d.to == toRank {
		d.counted = algorithm.Missing(saved.Next, now, cmp.Or(saved.Each, key.Scale))
	}
	d.Bad = d.Bad || key.Plan != ""
	if d.Bad || d.to != toLoad || saved.Next <= now {
		return nil
	}
	if _, err := d.join(&key.Series); err != nil {
		return err
	}
	h, err := d.of.Queues.Table.Lock(key, true, Present)
	if err != nil {
		return err
	}
	h.State.move(h.State.Merge(saved, h.Now))
	h.Unlock(states.Changed)
	return nil
}

func (d *decoder) flight() error {
	key := d.key()
	at, held := d.Any(), d.Int(0, math.MaxInt64)
	f := new(Flight) // kept nowhere
	d.hits(&f.Log)
	d.Bad = d.Bad || key.Plan != "" || f.Len() > 0 && at < f.Latest(0)
	if held > 0 {
		f.Add(at, held, "")
	}
	return restore(d, d.of.Places.Flights, key, f)
}

// restore makes saved the state of a caller that has counted nothing, or raises the count of one
// that has.
func restore[S totaled[S]](d *decoder, s States[S], key states.Key, saved S) error {
	d.counted = saved.Used()
	if d.Bad || d.to != toLoad || saved.Expires(key.Scale) <= d.of.Clock.Read() {
		return nil
	}
	if _, err := d.join(&key.Series); err != nil {
		return err
	}
	h, err := s.Table.Lock(key, true, Present)
	if err != nil {
		return err
	}
	p, have, latest := Params{Scale: key.Scale}, h.State, saved.Latest(key.Scale)
	s.Algorithm.Advance(saved, p, h.Now)
	s.Algorithm.Advance(have, p, h.Now)
	switch {
	case have.Used() == 0 && h.Grow(saved.Bytes()):
		have.Restore(saved)
		h.Now = max(h.Now, latest) // hits stay in order, also on a clock that is behind
	case have.Used() > 0 && h.Reserve(""):
		s.Algorithm.Raise(have, p, h.Now, math.MaxInt64, saved.Used(), "")
	default:
		err = room.ErrFull
	}
	h.Unlock(states.Changed)
	return err
}

// totaled is a state that knows how much it counts, once it was advanced, and the instant of its
// newest hit, until it was.
type totaled[S any] interface {
	states.State
	Used() int64
	Latest(scaleMs int64) int64
	Restore(saved S)
}

// MostCountedFirst sorts the records of each kind by their counts, and mixes the kinds.
func (s *Loader) MostCountedFirst(records []Record) {
	type ranked struct {
		Record
		kind    int
		counted int64
		rank    float64 // the share of the records of its kind that have counted more
	}
	all := make([]ranked, len(records))
	for i, r := range records {
		d := s.decoder(r, toRank)
		_ = d.record() // fails only if it loads
		all[i] = ranked{Record: r, kind: d.kind, counted: d.counted}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.counted, a.counted))
	})
	for first, end := 0, 0; first < len(all); first = end {
		for end < len(all) && all[end].kind == all[first].kind {
			end++
		}
		for i := first; i < end; i++ {
			all[i].rank = float64(i-first) / float64(end-first)
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for i := range all {
		records[i] = all[i].Record
	}
}
