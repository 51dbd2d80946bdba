package engine

import (
	"io"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/snapshot"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

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
		h, _ := e.of.Places.Flights.Table.Lock(key, false, Present) // fails only if it makes one
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
