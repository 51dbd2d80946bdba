package fallback

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// account is what is known of one caller. The page's mu guards it.
type account struct {
	last  tally  // what primary last told
	debts []debt // what local admitted and primary does not know of; the first to lapse first
	reset bool   // primary is still to forget the caller
	lease lease
	plain time.Time // until then no block is asked for, as it could not be leased

	// since is the page's number of Resets when this account was made or last reset; see stale.
	since uint64

	// doubts is the breaker's number when primary's count was last seen: after a later one it may have been lost.
	doubts uint64

	// settling is closed when whoever pays the debts is done; nil if nobody does.
	settling chan struct{}

	// flight is the question to primary for the next block of the lease; nil if there is none.
	flight *flight
}

// debt is cost that local admitted, and that counts until an instant.
type debt struct {
	cost  uint64
	until time.Time
}

// maxDebts is how many debts of one caller are kept apart. Their instants are rounded up to eighths of a Duration, so
// that the periods of every strategy but a token bucket of many Durations stay within.
const maxDebts = 20

// tally is what primary had counted at an instant.
type tally struct {
	total     uint64
	at, until time.Time // until: nothing of it counts any more
	whole     bool      // all of it counts until then, and not less and less
}

// now returns how much of it still counts. In a fixed window all does; in a bucket it runs off evenly, which is exact, and
// elsewhere it is taken to.
func (t tally) now(now time.Time) uint64 {
	if !now.Before(t.until) {
		return 0
	}
	if t.whole || !now.After(t.at) {
		return t.total
	}
	hi, lo := bits.Mul64(t.total, uint64(t.until.Sub(now)))
	n, _ := bits.Div64(hi, lo, uint64(t.until.Sub(t.at))) // less is left than there was: it fits
	return n
}

// learn notes what primary told about r. A denial tells when there is room, not when the period ends, unless that is one.
func (a *account) learn(r *weir.Request, res *weir.Result, now time.Time, skew time.Duration) {
	whole := fixed(r, res, now, skew)
	if res.ExpiresAt.After(now) && (whole || res.Allowed()) {
		a.last = tally{res.TotalRequests, now, res.ExpiresAt, whole}
	}
}

// fixed reports whether res is about a window that is aligned to the Unix epoch and ends no later than one that runs now,
// by a clock that may be off by skew.
func fixed(r *weir.Request, res *weir.Result, now time.Time, skew time.Duration) bool {
	return aligned(r, res.ExpiresAt) && res.ExpiresAt.Sub(now) <= r.Duration+skew
}

// aligned reports whether a whole number of r's Durations have passed at t since the Unix epoch.
func aligned(r *weir.Request, t time.Time) bool {
	return t.UnixMilli()%r.Duration.Milliseconds() == 0 && t.Nanosecond()%int(time.Millisecond) == 0
}

// owe adds a debt.
func (a *account) owe(r *weir.Request, cost uint64, until, now time.Time) {
	a.debts = slices.DeleteFunc(a.debts, func(d debt) bool { return !d.until.After(now) })
	until = grain(r, until)
	at, found := slices.BinarySearchFunc(a.debts, until, func(d debt, t time.Time) int { return d.until.Compare(t) })
	if found {
		a.debts[at].cost = plus(a.debts[at].cost, cost)
		return
	}
	a.debts = slices.Insert(a.debts, at, debt{cost, until})
	if len(a.debts) > maxDebts { // the first two become one, that lapses with the later
		a.debts[1].cost = plus(a.debts[0].cost, a.debts[1].cost)
		a.debts = slices.Delete(a.debts, 0, 1)
	}
}

// grain rounds t up to an eighth of r.Duration.
func grain(r *weir.Request, t time.Time) time.Time {
	g := r.Duration / 8 // whole: a Duration is whole milliseconds
	down := t.Add(-time.Duration(mod(t.Unix(), int64(t.Nanosecond()), int64(g))))
	if down.Equal(t) {
		return down
	}
	return down.Add(g)
}

// mod is the instant s seconds and ns nanoseconds from the Unix epoch, modulo g nanoseconds.
func mod(s, ns, g int64) int64 {
	negative := s < 0
	if negative {
		s = -s
	}
	hi, lo := bits.Mul64(uint64(s), uint64(time.Second))
	m := int64(bits.Rem64(hi, lo, uint64(g)))
	if negative {
		m = -m
	}
	return ((m+ns)%g + g) % g
}

// owed returns what the debts come to now.
func (a *account) owed(now time.Time) (sum uint64) {
	for _, d := range a.debts {
		if d.until.After(now) {
			sum = plus(sum, d.cost)
		}
	}
	return sum
}

// forgive takes back a debt of r's that lapses with taken, and reports whether there is one.
func (a *account) forgive(r *weir.Request, taken *weir.Result) bool {
	until := grain(r, taken.ExpiresAt)
	for i, d := range a.debts {
		if d.until.Equal(until) && d.cost > 0 {
			a.debts[i].cost -= min(d.cost, cost(r))
			return true
		}
	}
	return false
}

// unsettled reports whether primary must be told something before it decides for this caller.
func (a *account) unsettled(doubts uint64, now time.Time) bool {
	return a.settling != nil || a.reset || a.owed(now) > 0 || a.doubts != doubts && a.last.now(now) > 0
}

// idle reports whether the account may go: nobody uses it, and it neither owes nor holds anything. What it knows is a loss
// only if primary comes back empty.
func (a *account) idle(now time.Time) bool {
	return a.settling == nil && a.flight == nil && !a.reset && a.owed(now) == 0 && (a.lease.left == 0 || !now.Before(a.lease.until))
}

// cost is r.Cost, of which 0 means 1.
func cost(r *weir.Request) uint64 { return max(1, r.Cost) }

// plus is a+b, or the most there is.
func plus(a, b uint64) uint64 {
	if sum, carry := bits.Add64(a, b, 0); carry == 0 {
		return sum
	}
	return ^uint64(0)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
