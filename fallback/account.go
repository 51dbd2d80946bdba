package fallback

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/callers"
)

// account is the state of one caller since its last Reset. Its methods require mu, but for uncount
// and idle.
//
// Up: primary decides, and counted is its last count. Down: local decides, and what it admits are
// debts; while a call of primary is under way, only once that has ended without counting (pending).
// Back: the next call of primary takes along what primary has missed, a weir.Backlog: a reset; the
// last count, if primary may have lost it; and the debts, as two numbers, charged and total.
// Primary then charges total less charged, or less the largest total that it was sent before, if
// that is more. So a debt is charged once, however often it is sent:
//
//	                                              debts up to   total   charged   sent
//	1. local admits 5                             5                 5         0      0
//	2. local admits 3                             5 8               8         0      0
//	3. a call takes 0 and 8 along, but its answer
//	   is lost; has primary charged 8?            5 8               8         0      8
//	4. local decides on that call and others,
//	   and admits 4                               5 8 12           12         0      8
//	5. 2 are given back                           5 8 10           10         0      8
//	6. the first 5 count no more: as if charged   8 10             10         5      8
//	7. a call takes 5 and 10 along; primary, if it
//	   has seen 8, charges 2, and otherwise 5     8 10             10         5     10
//	8. its answer arrives                         8 10             10        10     10
//
// A reset begins another account: requests under way change one that is in use no more.
type account struct {
	users     atomic.Int32 // requests under way: the account must stay
	temporary bool         // the ledger had no room, so no other request finds it; set by open
	number    uint64       // different for each account; set by open
	replaced  atomic.Bool  // the caller was reset

	mu      sync.Mutex
	reset   time.Time // until then primary is to be reset; guarded by mu, as all below
	counted tally     // the last count of primary
	epoch   uint64    // the breaker's when the last answered call began; if it has risen, counted is sent

	// debts is the cost that local admitted, oldest first. total is all of it so far, charged the
	// part that primary has charged or that counts no more, sent the largest total that primary was
	// sent. Only total falls, by what is given back; while it is below sent, primary may have
	// charged more than is owed, and the next debts make up for it. Primary stores totals under the
	// number.
	debts                []debt
	total, charged, sent uint64

	sharing sharing
}

// debt is the admitted cost between the upTo before it and its own. Its admissions lapse between
// two instants, and the debt does so as a whole at the later one.
type debt struct {
	upTo        uint64
	from, until time.Time
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

// tally is a count of primary.
type tally struct {
	total     uint64
	at, until time.Time // at: it was known, or before; until: nothing of it counts any more
	constant  bool      // all of it counts until then, as in a fixed window
}

// now returns how much still counts. In a fixed window all of it does; elsewhere it is taken to
// decrease evenly, as it does in a token bucket.
func (t *tally) now(now time.Time) uint64 {
	if !now.Before(t.until) {
		return 0
	}
	if t.constant || !now.After(t.at) {
		return t.total
	}
	return uint64(float64(t.total) * float64(t.until.Sub(now)) / float64(t.until.Sub(t.at)))
}

// addDebt adds cost that counts until an instant: to the last debt, if that lapses no sooner or
// begins to lapse less than a quarter of the time earlier, and otherwise as a debt of its own. So
// there are few debts, in the order in which they lapse, and those of fixed windows lapse with
// their windows.
func (a *account) addDebt(cost uint64, until, now time.Time) {
	a.lapse(now)
	a.total += min(cost, math.MaxUint64-a.total)
	n, little := len(a.debts), until.Sub(now)/4
	if n == 0 || until.After(a.debts[n-1].until) && until.Sub(a.debts[n-1].from) >= little {
		a.debts = append(a.debts, debt{from: until, until: until})
	}
	last := &a.debts[len(a.debts)-1]
	last.upTo = a.total
	last.until = later(last.until, until)
}

// lapse removes the debts that count no more. When none is left, total and charged are equal and at
// least sent: nothing is owed, and no total is sent twice.
func (a *account) lapse(now time.Time) {
	for len(a.debts) > 0 && !a.debts[0].until.After(now) {
		a.charged = max(a.charged, a.debts[0].upTo)
		a.debts = slices.Delete(a.debts, 0, 1)
	}
	if len(a.debts) == 0 {
		a.total = max(a.total, a.charged, a.sent)
		a.charged = a.total
	}
}

// owed returns the cost that local admitted, that primary has not charged, and that still counts.
func (a *account) owed(now time.Time) uint64 {
	a.lapse(now)
	return a.total - min(a.total, a.charged)
}

// refund removes up to cost from the debts, and returns how much it removed.
func (a *account) refund(cost uint64, now time.Time) uint64 {
	cost = min(cost, a.owed(now))
	a.total -= cost
	for i := range a.debts {
		a.debts[i].upTo = min(a.debts[i].upTo, a.total)
	}
	return cost
}

// uncount takes cost from the last count of primary, or primary would be seeded with it after an
// outage.
func (a *account) uncount(cost uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted.total -= min(a.counted.total, cost)
}

// idle reports whether the account may be removed. The last count is lost with it, which matters
// only if primary loses its counts too.
func (a *account) idle(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users.Load() == 0 && !now.Before(a.reset) && a.owed(now) == 0
}

// ledger holds the accounts of a bounded number of callers.
type ledger struct {
	*callers.Table[account]
	numbers, dropped atomic.Uint64

	mu sync.Mutex

	// unrecorded is the sharing of the callers for whom local admitted cost that no account holds,
	// until none of that cost counts any more. Guarded by mu.
	unrecorded sharing
}

// open returns the account of r's caller, and makes it if there is none, or if the caller is reset:
// then reset is not zero. It is not removed until the caller of open, and each call of primary by
// then, has subtracted 1 from its users.
func (l *ledger) open(r *weir.Request, now, reset time.Time) (a *account) {
	if !l.Update(r, now, func(found *account) *account {
		if a = found; a == nil || !reset.IsZero() {
			a = &account{number: l.numbers.Add(1), reset: reset, sharing: l.unrecordedNow()}
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
