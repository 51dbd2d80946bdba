package states

import (
	"math"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
)

// Sweep removes the states that expired timeout ago at now, and returns their number.
func (t *Table[S]) Sweep(now, timeout int64) (removed int) {
	for i := range t.all() {
		t.Clock.Advance() // a sweep takes longer than a tick
		n, _ := t.sweep(&t.shards[i], now, timeout)
		removed += n
	}
	return removed
}

// Reclaim removes some states that have expired at now. It returns 0 if it found none, or has used
// up budget: a number of states to look at, which it lowers.
func (t *Table[S]) Reclaim(now int64, budget *int) int {
	for i := range t.all() {
		removed, seen := t.sweep(&t.shards[i], now, 0)
		*budget -= seen
		if removed > 0 || *budget <= 0 {
			return removed
		}
	}
	return 0
}

// Soonest returns an instant at or before the one at which the first state expires.
func (t *Table[S]) Soonest() int64 {
	soonest := algorithm.End
	for i := range t.all() {
		soonest = min(soonest, t.shards[i].expiry.earliest.Load())
	}
	return soonest
}

// HasBytes reports that states hold bytes of the room.
func (t *Table[S]) HasBytes() bool { return true }

// sweep removes the entries of a shard that expired timeout ago. It returns how many entries it
// saw: none if nothing can have expired.
func (t *Table[S]) sweep(sh *shard[S], now, timeout int64) (removed, seen int) {
	if sh.expiry.earliest.Load() > now {
		return 0, 0
	}
	sh.sweeping.Lock()
	defer sh.sweeping.Unlock()
	if sh.expiry.earliest.Load() > now { // swept while we waited
		return 0, 0
	}
	sh.expiry.begin()
	earliest := algorithm.End
	sh.entries.Load().Range(func(_ Key, e *Entry[S]) bool {
		seen++
		e.mu.Lock()
		end := e.end()
		// A call has just made this entry and will lock it: a reclaim leaves it, a sweep need not.
		beingMade := end == math.MinInt64 && timeout == 0
		over := now >= arith.Add(end, timeout) && !e.removed && !beingMade
		if over && t.mark(e) {
			removed++
		}
		e.mu.Unlock()
		if over {
			t.delete(e)
		} else {
			earliest = min(earliest, end)
		}
		return true
	})
	sh.expiry.finish(earliest)
	return removed, seen
}

// expiry is a lower bound, kept without a mutex, of the instants at which states expire. A sweep of
// them raises it again: it calls begin, looks at every state, and calls finish with the earliest it
// saw. States that change meanwhile are in noted. note lowers noted, then earliest; finish stores
// earliest, then reads noted: so each note is seen by finish, or lowers what finish stored.
type expiry struct{ earliest, noted atomic.Int64 }

func (e *expiry) reset() {
	e.earliest.Store(algorithm.End)
	e.noted.Store(algorithm.End)
}

func (e *expiry) note(end int64) {
	storeMin(&e.noted, end)
	storeMin(&e.earliest, end)
}

func (e *expiry) begin() { e.noted.Store(algorithm.End) }

func (e *expiry) finish(earliest int64) {
	e.earliest.Store(earliest)
	storeMin(&e.earliest, e.noted.Load())
}

func storeMin(a *atomic.Int64, to int64) {
	for {
		if at := a.Load(); at <= to || a.CompareAndSwap(at, to) {
			return
		}
	}
}
