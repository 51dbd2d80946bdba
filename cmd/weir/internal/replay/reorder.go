package replay

import (
	"cmp"
	"slices"
	"time"
)

// reorder puts the requests of a log in the order in which they came. Servers write a line when a request is over:
// Apache with the time at which it came, Caddy with what tells it, so that a quick request stands before a slow one that
// came first. reorder holds back the requests of the last `window` seconds of the log and hands out what is older.
//
// A request older than what was handed out already is late. It is handed out at once, as if it came now: time does not
// run back for a limiter. How many were late, and by how much, is counted.
//
// Logs of whole seconds do not say when in its second a request came. Those of one second are spread evenly over it, in
// the order of the log: taken together at its start they would be a burst that never was.
//
// Each second of the log has a slot in a ring, so that a request costs the same however many are held back.
type reorder struct {
	slots [][]event // second s is held in slots[s mod len]
	low   int64     // the earliest second that may still be held
	high  int64     // the latest second met
	held  int
	max   int // the number held at which the oldest are handed out before their time
	begun bool
	last  int64 // the time handed out last
	emit  func(ns int64, caller uint32) error

	late   uint64
	lateBy int64 // seconds that the latest of the late was behind the newest met
}

// event is a request held back: eight bytes, because a busy minute has millions.
type event struct {
	nanos  uint32 // within the second; coarse if the log does not say
	caller uint32
}

const coarse = 1<<32 - 1

// maxHeld bounds the memory of reorder, to 16 MiB and what slices have to spare.
const maxHeld = 2 << 20

func newReorder(window time.Duration, emit func(ns int64, caller uint32) error) *reorder {
	seconds := int64((window + time.Second - 1) / time.Second)
	return &reorder{slots: make([][]event, seconds+1), max: maxHeld, emit: emit}
}

// add takes a request that came at ns and hands out those that need not wait any longer.
func (r *reorder) add(ns int64, isCoarse bool, caller uint32) error {
	second, nanos := floorDiv(ns, 1e9)
	window := int64(len(r.slots)) - 1
	switch {
	case !r.begun:
		r.begun, r.high, r.low, r.last = true, second, second-window, (second-window)*1e9
	case second > r.high:
		if err := r.release(second - window); err != nil {
			return err
		}
		r.high = second
	case second < r.low:
		return r.overtaken(ns, second, caller)
	}
	e := event{uint32(nanos), caller}
	if isCoarse {
		e.nanos = coarse
	}
	slot := r.slot(second)
	*slot = append(*slot, e)
	if r.held++; r.held < r.max {
		return nil
	}
	return r.relieve()
}

// overtaken hands out a request that came before some that were handed out already, or that might have been.
func (r *reorder) overtaken(ns, second int64, caller uint32) error {
	if ns < r.last {
		r.late++
		r.lateBy = max(r.lateBy, r.high-second)
	}
	r.last = max(r.last, ns)
	return r.emit(r.last, caller)
}

// relieve hands out the oldest half of what is held.
func (r *reorder) relieve() error {
	for r.held > r.max/2 {
		if err := r.flush(); err != nil {
			return err
		}
		if r.low < r.high { // the newest second may yet get more
			r.low++
		}
	}
	return nil
}

// close hands out all that is held.
func (r *reorder) close() error { return r.release(r.high + 1) }

// release hands out the seconds before low.
func (r *reorder) release(low int64) error {
	for ; r.held > 0 && r.low < low; r.low++ {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.low = max(r.low, low)
	return nil
}

// flush hands out the second r.low.
func (r *reorder) flush() error {
	slot := r.slot(r.low)
	events := *slot
	spread(events)
	r.held -= len(events)
	*slot = events[:0]
	for _, e := range events {
		r.last = max(r.last, r.low*1e9+int64(e.nanos))
		if err := r.emit(r.last, e.caller); err != nil {
			return err
		}
	}
	return nil
}

func (r *reorder) slot(second int64) *[]event {
	_, i := floorDiv(second, int64(len(r.slots)))
	return &r.slots[i]
}

// spread gives the coarse events of one second their times and sorts all of them.
func spread(events []event) {
	n := 0
	for _, e := range events {
		if e.nanos == coarse {
			n++
		}
	}
	i := 0
	for j := range events {
		if events[j].nanos == coarse {
			events[j].nanos = uint32(int64(i) * 1e9 / int64(n))
			i++
		}
	}
	byTime := func(a, b event) int { return cmp.Compare(a.nanos, b.nanos) }
	if !slices.IsSortedFunc(events, byTime) {
		slices.SortStableFunc(events, byTime)
	}
}

// floorDiv returns the quotient of a and a positive b, rounded down, and what is left, which is never negative.
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}
