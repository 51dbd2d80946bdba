package engine

import (
	"cmp"
	"fmt"
	"io"
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

// Loader finds the store and the keys of a record.
type Loader struct {
	*Stores
	Series func(windows.SeriesName) (*windows.Series, error) // of a limit

	// Planned returns the store of tiers with these keys. It reports false if no tiers have them.
	Planned func(plan string, scaleMs int64) (s States[*algorithm.Slices], ok bool)
}

// The first bytes of a snapshot, and of its records.
const (
	Version = "weir snapshot 1\n"

	slotRecord     = 'b'
	calendarRecord = 'c'
	limitRecord    = 'n' // the name and the numbers of a limit, and one of the other records
	logRecord      = 'l'
	tiersRecord    = 't'
	queueRecord    = 'q' // a leaky bucket of an older release, without its spacing
	spacedRecord   = 's'
	flightRecord   = 'f'
	endRecord      = 'e'
)

// encoder is a snapshot on its way out.
type encoder struct {
	*snapshot.Writer
	of      *Stores
	now     int64        // of the clock, when it began
	flights []states.Key // with a slot, which are to be saved
	records int64
}

// Save writes a snapshot of stores to w. It fails with the error of w.
func Save(w io.Writer, s *Stores) error {
	e := &encoder{Writer: snapshot.NewWriter(w, Version), of: s, now: s.Clock.Read()}
	e.Int(e.now)
	e.table(s.Slots[FixedKind].Table, e.slot)
	e.table(s.Slots[CounterKind].Table, e.slot)
	e.table(s.Places.Table, e.noteFlight)
	saveStates(e, logRecord, s.Logs.Table, e.log)
	saveStates(e, logRecord, s.Lists.Table, func(g *algorithm.Listed) { e.log(&g.Log) })
	saveStates(e, tiersRecord, s.Tiers.Table, e.slices)
	saveStates(e, spacedRecord, s.Queues.Table, e.queue) // work in flight goes by its places, above
	e.Byte(endRecord)
	e.Int(e.records)
	return e.Close()
}

// table calls save for the buckets of a table, with the mutex of their shard held. After each
// chunk, without it, it saves the flights that save has noted, and writes.
func (e *encoder) table(t *slots.Table, save func(*slots.Shard, *slots.Slot)) {
	all := t.Shards()
	for i := range all {
		each := func(_ int, s *slots.Slot) { save(&all[i], s) }
		for c := 0; e.Err == nil && all[i].Visit(c, each); c++ {
			e.saveFlights()
			e.Flush()
		}
	}
}

// slot writes the record of a slot.
func (e *encoder) slot(sh *slots.Shard, s *slots.Slot) {
	k, scale, number := s.Period()
	c := s.Content(s.State())
	if sh.End(s, c) <= e.now || c.N == 0 && k == FixedKind {
		return
	}
	in := e.of.Windows.Of(scale)
	if k != FixedKind {
		in = e.of.Windows.Numbered(number)
	}
	e.begin(in)
	if in != nil && in.SeriesName.Calendar != "" {
		e.Byte(calendarRecord)
		e.Text(in.SeriesName.Calendar)
		number, scale = number/1000, 0
	} else {
		e.Buf = append(e.Buf, slotRecord, byte(k))
	}
	if in != nil && in.Length > 0 {
		number, scale = number/in.Length-1, in.Length
	}
	e.Int(int64(s.IDLen()))
	e.Buf = sh.AppendID(e.Buf, s)
	if scale > 0 {
		e.Int(scale)
	}
	e.Int(c.N)
	if k == FixedKind {
		e.Int(number)
		return
	}
	e.Int(c.Still1)
	// an older release has the instant of the last use here, or of a token bucket 0
	e.Int(c.Still2)
}

// begin begins a record of a bucket, of the counts of a limit if in is one's.
func (e *encoder) begin(in *windows.Series) {
	e.records++
	if in != nil && (in.Name != "" || in.Numbers != "") {
		e.Byte(limitRecord)
		e.Text(in.Name)
		e.Text(in.Numbers)
	}
}

// state begins the record of a state.
func (e *encoder) state(record byte, key states.Key) {
	e.begin(e.of.Windows.Numbered(key.Series))
	e.Byte(record)
	e.Text(key.ID)
	e.Int(key.Scale)
	e.Text(key.Plan)
}

// saveStates writes the states of a table, each by write.
func saveStates[S states.State](e *encoder, record byte, t *states.Table[S], write func(S)) {
	t.States(e.now, func(key states.Key, s S) {
		e.state(record, key)
		write(s)
	}, func() bool {
		e.Flush()
		return e.Err == nil
	})
}

// log writes a log.
func (e *encoder) log(g *algorithm.Log) {
	e.Int(int64(g.Len()))
	for i := range g.Len() {
		h, meta := g.Hit(i)
		e.Int(h.At)
		e.Int(h.Cost)
		e.Text(meta)
	}
}

// slices writes the counts of tiers.
func (e *encoder) slices(s *algorithm.Slices) {
	e.Int(int64(s.Len()))
	for i := range s.Len() {
		e.Int(s.At(i).Number)
		e.Int(s.At(i).Cost)
	}
}

// queue writes a leaky bucket, without its waiters.
func (e *encoder) queue(q *Queue) {
	e.Int(q.Next)
	e.Int(q.Each)
}

// noteFlight has saveFlights write the work in flight of a slot.
func (e *encoder) noteFlight(sh *slots.Shard, s *slots.Slot) {
	if sh.End(s, s.Content(s.State())) <= e.now {
		return
	}
	key := states.Key{ID: string(sh.AppendID(nil, s))}
	_, key.Scale, key.Series = s.Period()
	e.flights = append(e.flights, key)
}

// saveFlights writes the work in flight of the slots in flights, each locked. The caller holds no
// lock.
func (e *encoder) saveFlights() {
	for _, key := range e.flights {
		h, _ := e.of.Places.Flights.Table.Lock(key, false) // fails only if it makes one
		if f := h.State; f.Held() > 0 || f.Expires(key.Scale) > e.now {
			e.state(flightRecord, key)
			e.flight(f)
		}
		h.Unlock(states.Seen)
	}
	e.flights = e.flights[:0]
}

// flight writes the leases, and the places that are held as the newest of them: they end one period
// after the snapshot.
func (e *encoder) flight(f *Flight) {
	at := e.now
	if f.Len() > 0 {
		at = max(at, f.Latest(0))
	}
	e.Int(at)
	e.Int(f.Held())
	e.log(&f.Log)
}

// MaxAhead is how far the clock may lie behind that of a snapshot: a clock that was set back by
// more would not come to the windows of the snapshot for long, and they would fill the table.
const MaxAhead = int64(time.Minute)

// Record is a saved bucket.
type Record struct {
	data    []byte  // from its type on
	kind    int     // of strategy: the kind of a slot, or the type of another record
	counted int64   // a measure of how much is counted, to compare records of a kind
	rank    float64 // the share of the records of its kind that have counted more
}

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
		d.counted = 0
		_ = d.record() // fails only if it loads
		records = append(records,
			Record{data: data[:len(data)-len(d.Data)], kind: d.kind, counted: d.counted})
	}
	if d.Bad {
		err = fmt.Errorf("bad record before byte %d", d.Offset())
	}
	return records, saved, err
}

// Load merges a record. It fails with room.ErrFull, and as Series does.
func (s *Loader) Load(r *Record) error {
	d := &decoder{Reader: snapshot.Reader{Data: r.data}, of: s, load: true}
	return d.record()
}

// decoder reads a snapshot. Once something is bad, it reads zeros.
type decoder struct {
	snapshot.Reader
	of      *Loader
	load    bool               // else records are only checked
	limit   windows.SeriesName // of the record, if it is one of a limit
	kind    int                // of the record that was read last
	counted int64              // by it
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

// id reads an ID and a scale, and key those and a plan.
func (d *decoder) id() (id string, scale int64) {
	id, scale = d.Text(1), d.Int(1, bounds.MaxScale)
	d.Bad = d.Bad || len(id) > bounds.MaxKey
	return id, scale
}

func (d *decoder) key() (id string, scale int64, plan string) {
	id, scale = d.id()
	return id, scale, d.Text(0)
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
	if !d.load {
		// The total is the count, or of a token bucket the tokens that are missing. One of an older
		// release has no spacing: it is given that of a million tokens in a scale.
		all := Params{Scale: scale, Limit: algorithm.MaxCount, Cost: 1, Each: scale}
		v, _ := s.Algorithm.Decide(saved, all, d.of.Clock.Read())
		d.kind, d.counted = int(k), v.Total
		return nil
	}
	end := s.Algorithm.Expires(saved, scale)
	if k == FixedKind && d.limit != (windows.SeriesName{}) {
		d.limit.Length = scale
	}
	in, err := d.join(&s.Keys)
	if err != nil {
		return err
	}
	if k == FixedKind && in != nil {
		scale = in.Scale()
	}
	return s.merge(id, scale, since, end, saved)
}

// join sets the series of a store's keys, if the record is of a limit. It returns the series, or
// nil.
func (d *decoder) join(k *Keys) (*windows.Series, error) {
	if d.limit == (windows.SeriesName{}) {
		return nil, nil
	}
	in, err := d.of.Series(d.limit)
	if err == nil {
		k.Series = in.Number
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
	if d.Bad || !d.load {
		return nil
	}
	s := d.of.Slots[FixedKind]
	in, err := d.join(&s.Keys)
	if err != nil {
		return err
	}
	return s.merge(id, in.Scale(), end-1, end, saved)
}

// log reads a log, or a list.
func (d *decoder) log() error {
	id, scale, plan := d.key()
	switch plan {
	case d.of.Logs.Plan:
		g := new(algorithm.Log)
		d.hits(g)
		return restore(d, d.of.Logs, id, scale, g)
	case d.of.Lists.Plan:
		g := new(algorithm.Listed)
		d.hits(&g.Log)
		return restore(d, d.of.Lists, id, scale, g)
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
	id, scale, plan := d.key()
	of, ok := d.of.Planned(plan, scale)
	d.Bad = d.Bad || !ok
	if d.Bad {
		return nil
	}
	var counts []algorithm.Slice
	total, last := int64(0), int64(math.MinInt64)
	for n := d.Int(0, math.MaxInt64); n > 0 && !d.Bad; n-- {
		last = d.Int(last, math.MaxInt64)
		counts = append(counts, algorithm.Slice{Number: last, Cost: d.Int(0, math.MaxInt64-total)})
		total += counts[len(counts)-1].Cost
	}
	s := new(algorithm.Slices)
	of.Algorithm.(*algorithm.Tiers).Restore(s, counts)
	return restore(d, of, id, scale, s)
}

// queue reads a bucket: spaced, or as an older release has saved it, without its spacing.
func (d *decoder) queue(spaced bool) error {
	id, scale, plan := d.key()
	saved := algorithm.LeakyBucket{Next: d.Any()}
	if spaced {
		saved.Each = d.Int(0, bounds.MaxScale*int64(time.Millisecond))
	}
	now := d.of.Clock.Read()
	d.counted = algorithm.Missing(saved.Next, now, cmp.Or(saved.Each, scale))
	d.Bad = d.Bad || plan != ""
	if d.Bad || !d.load || saved.Next <= now {
		return nil
	}
	s := d.of.Queues
	if _, err := d.join(&s.Keys); err != nil {
		return err
	}
	h, err := s.Lock(id, scale, true)
	if err != nil {
		return err
	}
	h.State.move(h.State.Merge(saved, h.Now))
	h.Unlock(states.Changed)
	return nil
}

func (d *decoder) flight() error {
	id, scale, plan := d.key()
	at, held := d.Any(), d.Int(0, math.MaxInt64)
	f := new(Flight) // kept nowhere
	d.hits(&f.Log)
	d.Bad = d.Bad || plan != "" || f.Len() > 0 && at < f.Latest(0)
	if held > 0 {
		f.Add(at, held, "")
	}
	return restore(d, d.of.Places.Flights, id, scale, f)
}

// restore makes saved the state of a caller that has counted nothing, or raises the count of one
// that has.
func restore[S totaled[S]](d *decoder, s States[S], id string, scaleMs int64, saved S) error {
	d.counted = saved.Used()
	if d.Bad || !d.load || saved.Expires(scaleMs) <= d.of.Clock.Read() {
		return nil
	}
	if _, err := d.join(&s.Keys); err != nil {
		return err
	}
	h, err := s.Lock(id, scaleMs, true)
	if err != nil {
		return err
	}
	p, have, latest := Params{Scale: scaleMs}, h.State, saved.Latest(scaleMs)
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
func MostCountedFirst(records []Record) {
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.counted, a.counted))
	})
	for first, end := 0, 0; first < len(records); first = end {
		for end < len(records) && records[end].kind == records[first].kind {
			end++
		}
		for i := first; i < end; i++ {
			records[i].rank = float64(i-first) / float64(end-first)
		}
	}
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.rank, b.rank) })
}
