package weir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/core/snapshot"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// ErrSnapshot: what Load was given is no snapshot, or a damaged one, or one of the future.
var ErrSnapshot = errors.New("weir: bad snapshot")

// A snapshot holds the instant of the limiter's clock, a record for each bucket that counts, and
// the number of records; see package snapshot for the rest.
const (
	snapshotVersion = "weir snapshot 1\n"

	slotRecord     = 'b'
	calendarRecord = 'c'
	limitRecord    = 'n' // the name and the numbers of a Limit, and one of the other records
	logRecord      = 'l'
	tiersRecord    = 't'
	queueRecord    = 'q'
	flightRecord   = 'f'
	endRecord      = 'e'
)

// Save writes what is counted now to w, for Load in the next process: the counts of every strategy
// but those who wait in a LeakyBucket. It takes 15 to 40 bytes and the ID for each bucket that has
// not expired. Windows are aligned to the Unix epoch, so the counts stay valid as long as the wall
// clock does.
//
// It is safe beside all other calls, and after Close. It is not a snapshot of one instant: what is
// admitted while it runs may be in it or not. No lock is held while it writes. It fails with the
// error of w; then what was written is no snapshot.
func (l *Limiter) Save(w io.Writer) error {
	e := &encoder{Writer: snapshot.NewWriter(w, snapshotVersion), l: l, now: l.clock.Read()}
	e.Int(e.now)
	e.slots(l.buckets, e.slot)
	e.slots(l.callers, e.slot)
	e.slots(l.places, e.noteFlight)
	saveStates(e, logRecord, &l.logs, e.log)
	saveStates(e, logRecord, &l.lists, e.list)
	saveStates(e, tiersRecord, &l.slices, e.tiers)
	saveStates(e, queueRecord, &l.queues, e.queue)
	e.Byte(endRecord)
	e.Int(e.records)
	return e.Close()
}

// encoder is a snapshot on its way out.
type encoder struct {
	*snapshot.Writer
	l       *Limiter
	now     int64        // of the limiter's clock, when it began
	flights []states.Key // with a slot, which are to be saved
	records int64
}

// slots calls save for the buckets of a table, with the mutex of their shard held.
func (e *encoder) slots(t *table, save func(*slots.Shard, *slots.Slot)) {
	for i := range t.shards {
		sh := &t.shards[i]
		each := func(_ int, s *slots.Slot) { save(sh, s) }
		for c := 0; e.Err == nil && sh.Visit(c, each); c++ {
			e.saveFlights()
			e.Flush()
		}
	}
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

// slot writes the record of a slot.
func (e *encoder) slot(sh *slots.Shard, s *slots.Slot) {
	k, scale, number := s.Period()
	c := s.Content(s.State())
	if sh.End(s, c) <= e.now || c.N == 0 && k == fixedKind {
		return
	}
	var in *windows.Series
	switch {
	case scale > maxScale:
		in = e.l.windows.Of(scale)
	case k != fixedKind && number != 0:
		in = e.l.windows.Numbered(number)
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
	if k == fixedKind {
		e.Int(number)
		return
	}
	e.Int(c.Still1)
	// an older release has the instant of the last use here, or of a token bucket 0
	e.Int(c.Still2)
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

// begin begins a record of a bucket, of the counts of a Limit if in is one's.
func (e *encoder) begin(in *windows.Series) {
	e.records++
	if in != nil && (in.Name != "" || in.Numbers != "") {
		e.Byte(limitRecord)
		e.Text(in.Name)
		e.Text(in.Numbers)
	}
}

// saveFlights writes the work in flight of the slots in flights. No lock is held.
func (e *encoder) saveFlights() {
	for _, key := range e.flights {
		h, _ := e.l.flights.Lock(key, false) // fails only if it makes one
		if f := h.State; f.held() > 0 || f.Expires(key.Scale) > e.now {
			e.state(flightRecord, key)
			e.flight(f)
		}
		h.Unlock(states.Seen)
	}
	e.flights = e.flights[:0]
}

// state begins the record of a state.
func (e *encoder) state(record byte, key states.Key) {
	var in *windows.Series
	if key.Series > 0 {
		in = e.l.windows.Numbered(key.Series)
	}
	e.begin(in)
	e.Byte(record)
	e.Text(key.ID)
	e.Int(key.Scale)
	e.Text(key.Plan)
}

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
// [ErrFull] if there was no room for some of the buckets: it loads those first that have counted
// most, of each strategy, since they are the nearest to their limits. It is safe beside all other
// calls.
func (l *Limiter) Load(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("weir: reading a snapshot: %w", err)
	}
	if l.closed.Load() {
		return l.fail(ErrClosed)
	}
	records, err := l.check(data)
	if err != nil {
		return err
	}
	if int64(len(records)) > l.room.Max-l.room.Used() {
		mostCountedFirst(records)
	}
	full := 0
	for _, r := range records {
		if d := (&decoder{Reader: snapshot.Reader{Data: r.data}, l: l, load: true}); d.record() != nil {
			full++
		}
	}
	if full > 0 {
		return fmt.Errorf("%w: no room for %d of %d saved buckets", l.fail(ErrFull), full, len(records))
	}
	return nil
}

// record is a saved bucket.
type record struct {
	data    []byte  // from its type on
	kind    int     // of strategy: the kind of a slot, or the type of another record
	counted int64   // a measure of how much is counted, to compare records of a kind
	rank    float64 // the share of the records of its kind that have counted more
}

// mostCountedFirst sorts the records of each kind by what they have counted, and mixes the kinds.
func mostCountedFirst(records []record) {
	slices.SortFunc(records, func(a, b record) int {
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
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.rank, b.rank) })
}

// check reads a snapshot without loading it, and returns its records.
func (l *Limiter) check(data []byte) ([]record, error) {
	r, err := snapshot.Open(data, snapshotVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	d := &decoder{Reader: r, l: l}
	saved := d.Any()
	records := d.all()
	if d.Bad {
		return nil, fmt.Errorf("%w: bad record before byte %d", ErrSnapshot, d.Offset())
	}
	if now := l.clock.Read(); saved > arith.Add(now, maxAhead) {
		return nil, fmt.Errorf("%w: it is of %v, and the clock shows %v",
			ErrSnapshot, l.clock.Time(saved), l.clock.Time(now))
	}
	return records, nil
}

// decoder reads a snapshot. Once something is bad, it reads zeros.
type decoder struct {
	snapshot.Reader
	l       *Limiter
	load    bool               // else what is read is only checked
	limit   windows.SeriesName // of the record, if it is one of a Limit
	kind    int                // of the record that was read last
	counted int64              // by it
}

// id reads an ID and a scale, and key those and a plan.
func (d *decoder) id() (id string, scale int64) {
	id, scale = d.Text(1), d.Int(1, maxScale)
	d.Bad = d.Bad || len(id) > maxID
	return id, scale
}

func (d *decoder) key() (id string, scale int64, plan string) {
	id, scale = d.id()
	return id, scale, d.Text(0)
}

// all reads the records up to the end.
func (d *decoder) all() (records []record) {
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
			record{data: data[:len(data)-len(d.Data)], kind: d.kind, counted: d.counted})
	}
	return records
}

// record reads one record. It fails with ErrFull.
func (d *decoder) record() error {
	t := d.Byte()
	if d.limit = (windows.SeriesName{}); t == limitRecord {
		d.limit.Name, d.limit.Numbers = d.Text(0), d.Text(0)
		d.Bad = d.Bad || max(len(d.limit.Name), len(d.limit.Numbers)) > maxID
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
	case queueRecord:
		return d.queue()
	case flightRecord:
		return d.flight()
	}
	d.Bad = true
	return nil
}

func (d *decoder) slot() error {
	k := slots.Kind(d.Byte())
	if d.Bad = d.Bad || int(k) >= len(slotAlgorithms); d.Bad {
		return nil
	}
	id, scale := d.id()
	since := noInstant
	saved := slots.Content{N: d.Int(0, maxCount), Still1: d.Any()}
	if k == fixedKind {
		number := saved.Still1
		// A clock that is behind may not have come to the window yet: it is restored all the same.
		since = algorithm.WindowStart(number, max(scale, 1))
		saved.Still1 = since
		d.Bad = d.Bad || windows.At(since, max(scale, 1)).Number != number
	} else {
		saved.Still2 = d.Any()
	}
	if d.Bad = d.Bad || k == slidingKind && saved.Still1 > maxCount; d.Bad {
		return nil
	}
	s := d.l.onSlots(k)
	if !d.load {
		// The total is the count, or of a token bucket the tokens that are missing; of one of an older
		// release, which has no spacing, what it lacks of a million tokens.
		all := params{Scale: scale, Limit: maxCount, Cost: 1, Each: scale}
		v, _ := s.algorithm.Decide(saved, all, d.l.clock.Read())
		d.kind, d.counted = int(k), v.Total
		return nil
	}
	end := s.algorithm.Expires(saved, scale)
	if s.kind == fixedKind && d.limit != (windows.SeriesName{}) {
		d.limit.Length = scale
	}
	if err := d.count(&s.reader); err != nil {
		return err
	}
	if k == fixedKind && s.series != 0 {
		scale = maxScale + s.series
	}
	return s.restore(id, scale, since, end, saved)
}

// count has s count for the Limit of the record, if it is of one.
func (d *decoder) count(s *reader) error {
	in, err := d.series()
	if in != nil {
		s.series = in.Number
	}
	return err
}

// series returns that of the record, or nil if the record is not of a Limit.
func (d *decoder) series() (*windows.Series, error) {
	if d.limit == (windows.SeriesName{}) {
		return nil, nil
	}
	return d.l.named(d.limit, nil)
}

// calendar reads a bucket of a Calendar. If the rules of the zone were changed, its count goes to
// the window that now holds the end of the one that it was counted in.
func (d *decoder) calendar() error {
	d.limit.Calendar = d.Text(1)
	if d.Bad = d.Bad || len(d.limit.Calendar) > maxName; d.Bad {
		return nil
	}
	_, err := d.l.windows.Calendar(d.limit.Calendar, nil)
	id, saved := d.Text(1), slots.Content{N: d.Int(0, maxCount)}
	end := algorithm.WindowStart(d.Any(), 1000)
	d.counted = saved.N
	if d.Bad = d.Bad || err != nil || len(id) > maxID; d.Bad || !d.load {
		return nil
	}
	in, err := d.series()
	if err != nil {
		return err
	}
	s := d.l.onSlots(fixedKind)
	return s.restore(id, in.Scale(), end-1, end, saved)
}

// restore merges what was saved of a caller, and expires at end. A fixed window is that of since.
func (s *slotStrategy) restore(id string, scaleMs, since, end int64, saved slots.Content) error {
	if end <= s.l.clock.Read() {
		return nil
	}
	_, err := s.update(id, scaleMs, true, since, func(b visit) slots.Content {
		if b.now >= end {
			return b.Content
		}
		return s.algorithm.Merge(b.Content, saved, scaleMs, b.now, maxAhead)
	})
	return err
}

// restore makes saved the state of a caller that has counted nothing, or raises the count of one
// that has.
func restore[S totaled[S]](d *decoder, s *stateStrategy[S], key states.Key, saved S) error {
	d.counted = saved.Used()
	if d.Bad || !d.load || saved.Expires(key.Scale) <= d.l.clock.Read() {
		return nil
	}
	if err := d.count(&s.reader); err != nil {
		return err
	}
	h, err := s.lock(key.ID, key.Scale, true)
	if err != nil {
		return err
	}
	p, have, latest := params{Scale: key.Scale}, h.State, saved.Latest(key.Scale)
	s.algorithm.Advance(saved, p, h.Now)
	s.algorithm.Advance(have, p, h.Now)
	switch {
	case have.Used() == 0 && h.Grow(saved.Bytes()):
		have.Restore(saved)
		h.Now = max(h.Now, latest) // hits stay in order, also on a clock that is behind
	case have.Used() > 0 && h.Reserve(""):
		s.algorithm.Raise(have, p, h.Now, math.MaxInt64, saved.Used(), "")
	default:
		err = ErrFull
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
