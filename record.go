package weir

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/snapshot"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// A snapshot holds the instant of the limiter's clock, a record for each bucket that counts, and
// the number of records; see package snapshot for the rest.
const (
	snapshotVersion = "weir snapshot 1\n"

	slotRecord     = 'b'
	calendarRecord = 'c'
	limitRecord    = 'n' // the name and the numbers of a Limit, and one of the other records
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
	l       *Limiter
	now     int64        // of the limiter's clock, when it began
	flights []states.Key // with a slot, which are to be saved
	records int64
}

// slot writes the record of a slot.
func (e *encoder) slot(sh *slots.Shard, s *slots.Slot) {
	k, scale, number := s.Period()
	c := s.Content(s.State())
	if sh.End(s, c) <= e.now || c.N == 0 && k == fixedKind {
		return
	}
	in := e.l.windows.Of(scale)
	if k != fixedKind {
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

// begin begins a record of a bucket, of the counts of a Limit if in is one's.
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
	e.begin(e.l.windows.Numbered(key.Series))
	e.Byte(record)
	e.Text(key.ID)
	e.Int(key.Scale)
	e.Text(key.Plan)
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

// saveStates writes the states of a table, each by write.
func saveStates[S states.State](
	e *encoder, record byte, t *states.Table[S], write func(*encoder, S),
) {
	t.States(e.now, func(key states.Key, s S) {
		e.state(record, key)
		write(e, s)
	}, func() bool {
		e.Flush()
		return e.Err == nil
	})
}

// maxAhead is how far the clock may lie behind that of a snapshot: a clock that was set back by
// more would not come to the windows of the snapshot for long, and they would fill the table.
const maxAhead = int64(time.Minute)

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

func (d *decoder) slot() error {
	k := slots.Kind(d.Byte())
	d.Bad = d.Bad || int(k) >= len(slotAlgorithms)
	if d.Bad {
		return nil
	}
	id, scale := d.id()
	since := noInstant
	saved := slots.Content{N: d.Int(0, maxCount), Still1: d.Any()}
	if k == fixedKind {
		// The record has the window's number here, and Expires looks for its start; the slot has neither.
		number := saved.Still1
		// A clock that is behind may not have come to the window yet: it is restored all the same.
		since = algorithm.WindowStart(number, max(scale, 1))
		saved.Still1 = since
		d.Bad = d.Bad || windows.At(since, max(scale, 1)).Number != number
	} else {
		saved.Still2 = d.Any()
	}
	d.Bad = d.Bad || k == slidingKind && saved.Still1 > maxCount
	if d.Bad {
		return nil
	}
	s := newSlotStrategy(d.l, k)
	if !d.load {
		// The total is the count, or of a token bucket the tokens that are missing. One of an older
		// release has no spacing: it is given that of a million tokens in a scale.
		all := params{Scale: scale, Limit: maxCount, Cost: 1, Each: scale}
		v, _ := s.algorithm.Decide(saved, all, d.l.clock.Read())
		d.kind, d.counted = int(k), v.Total
		return nil
	}
	end := s.algorithm.Expires(saved, scale)
	if s.kind == fixedKind && d.limit != (windows.SeriesName{}) {
		d.limit.Length = scale
	}
	if err := d.joinSeries(&s.reader); err != nil {
		return err
	}
	if k == fixedKind && s.series != 0 {
		scale = maxScale + s.series
	}
	return mergeSlot(&s, id, scale, since, end, saved)
}

// joinSeries has s count in the series of the record, if it is of a Limit.
func (d *decoder) joinSeries(s *reader) error {
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
	d.Bad = d.Bad || len(d.limit.Calendar) > maxName
	if d.Bad {
		return nil
	}
	_, err := d.l.windows.Calendar(d.limit.Calendar, nil)
	id, saved := d.Text(1), slots.Content{N: d.Int(0, maxCount)}
	end := algorithm.WindowStart(d.Any(), 1000)
	d.counted = saved.N
	d.Bad = d.Bad || err != nil || len(id) > maxID
	if d.Bad || !d.load {
		return nil
	}
	in, err := d.series()
	if err != nil {
		return err
	}
	s := newSlotStrategy(d.l, fixedKind)
	return mergeSlot(&s, id, in.Scale(), end-1, end, saved)
}

// restoreState makes saved the state of a caller that has counted nothing, or raises the count of
// one that has.
func restoreState[S totaled[S]](d *decoder, s *stateStrategy[S], key states.Key, saved S) error {
	d.counted = saved.Used()
	if d.Bad || !d.load || saved.Expires(key.Scale) <= d.l.clock.Read() {
		return nil
	}
	if err := d.joinSeries(&s.reader); err != nil {
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

// mergeSlot merges what was saved of a caller, unless it has expired: it does at end. A fixed
// window is that of since.
func mergeSlot(s *slotStrategy, id string, scaleMs, since, end int64, saved slots.Content) error {
	if end <= s.l.clock.Read() {
		return nil
	}
	return s.update(id, scaleMs, true, since, func(b visit) slots.Content {
		if b.now >= end {
			return b.Content
		}
		return s.algorithm.Merge(b.Content, saved, scaleMs, b.now, maxAhead)
	})
}
