package fallback

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/callers"
)

// account is the state of one caller since its last Reset.
//
// Up: primary decides, and counted is its last count. Down: local decides, after it has counted the
// calls of primary that are under way (calls), and its admissions are debts; while the call of the
// same request is under way, only once that has ended without counting (pending). Back: the next
// call of primary takes along all that primary has missed, a weir.Backlog: a reset; the last count,
// if primary may have lost it; and the debts, as two running totals: charged, up to which primary
// has charged them or debts have lapsed, and total. Primary stores the largest total under the
// account's number, and charges the excess of a total over that and over charged: so a debt is
// charged once, however often sent. The type debts has an example.
//
// A reset begins another account: requests under way change one that is in use no more.
type account struct {
	users     atomic.Int32 // requests under way: the account must stay
	temporary bool         // the ledger had no room, so no other request finds it; set by open
	// primary has answered with less than counted, which is sent again; guarded by mu
	lost     bool
	number   uint64      // different for each account; set by open
	replaced atomic.Bool // the caller was reset

	mu      sync.Mutex
	reset   time.Time // until then primary is to be reset; guarded by mu, as all below
	counted count     // the last of primary
	answers uint64    // of primary, with counts
	back    takeBacks
	// the breaker's epoch when the last answered call began: if the epoch has risen since, primary may
	// have lost its counts, and counted is sent
	epoch uint64

	debts   debts // admissions of local
	sharing sharing
	window  windowCount // of local

	calls *calls // of primary that are under way and that local does not count
	first calls  // the first that calls points to

	ahead sum // the cost of the calls under way that local counts
}

// sharing is the number of instances that local's counts of a caller are a share of, until its
// period ends. When fewer instances are left, their larger shares hold from then on: a count that
// was seeded as a share of more is too low for them.
type sharing struct {
	instances uint64
	until     time.Time
}

// among returns the number of instances that share a limit now, of which there are n.
func (s sharing) among(n uint64, now time.Time) uint64 {
	if now.Before(s.until) {
		return max(n, s.instances)
	}
	return n
}

// hold records that local's counts are shares of n instances, until an instant or later.
func (s *sharing) hold(n uint64, until time.Time) { *s = sharing{n, later(s.until, until)} }

// later returns the later of two instants.
func later(t, u time.Time) time.Time { return slices.MaxFunc([]time.Time{t, u}, time.Time.Compare) }

// count is a count of primary.
type count struct {
	total     uint64
	at, until time.Time  // at: the count was known, or before; until: nothing of it counts any more
	limit     uint64     // of the request
	changes   uint32     // of the takeBacks, when the call began that this answers
	lapses    weir.Lapse // LapsesWithWindow: as a whole, when its window ends
}

// now returns how much still counts. In a fixed window all of the count does; elsewhere the count
// is taken to decrease evenly, as in a token bucket.
func (c *count) now(now time.Time) uint64 {
	switch {
	case !now.Before(c.until):
		return 0
	case c.lapses == weir.LapsesWithWindow || !now.After(c.at):
		return c.total
	}
	return uint64(float64(c.total) * float64(c.until.Sub(now)) / float64(c.until.Sub(c.at)))
}

// endTakeBack ends a take-back: see takeBacks.
func (a *account) endTakeBack(answered bool, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back.end(answered, until)
}

// idle reports whether the account may be removed. The last count is lost too, which matters
// only if primary loses its counts.
func (a *account) idle(now time.Time) bool {
	if a.users.Load() > 0 { // first: mu may be locked for as long as local takes to decide
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !now.Before(a.reset) && a.debts.Owed(now) == 0
}

// ledger holds the accounts of a bounded number of callers.
type ledger struct {
	*callers.Table[account]
	numbers atomic.Uint64
	dropped tally

	mu sync.Mutex

	// unrecorded is the sharing of the callers for whom local admitted cost that no account holds, as
	// theirs were temporary, until none of that cost counts any more. Guarded by mu.
	unrecorded sharing
}

// open returns the account of r's caller, and makes one if there is none, or if the caller is
// reset: then reset is not zero. open adds 1 to its users, and each call of primary that may
// outlast the visit another 1: the account stays until all are subtracted.
func (l *ledger) open(r *weir.Request, now, reset time.Time) (a *account) {
	if r.Lasting { // of every Duration
		r = &weir.Request{Key: r.Key, Duration: time.Millisecond, Lasting: true}
	}
	if !l.Update(r, now, func(found *account) *account {
		a = found
		if a == nil || !reset.IsZero() {
			a = &account{number: l.numbers.Add(1), reset: reset, sharing: l.unrecordedNow()}
			a.calls = &a.first
			if !reset.IsZero() {
				a.back.begin() // Reset ends this
			}
		}
		if found != nil && found != a {
			found.replaced.Store(true)
		}
		a.users.Add(1)
		return a
	}) {
		a.temporary = true
	}
	return a
}

// drop records that primary will not be charged with cost that local admitted, of a limit shared
// out to n instances.
func (l *ledger) drop(cost, n uint64, now, until time.Time) {
	l.dropped.Add(cost)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.hold(l.unrecorded.among(n, now), until)
}

func (l *ledger) unrecordedNow() sharing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded
}
