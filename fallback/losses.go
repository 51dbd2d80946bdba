package fallback

import (
	"errors"
	"time"

	"github.com/weirgo/weir"
)

// ErrLost is the error that Config.OnError gets when primary had lost counts although no call of it
// failed: it was emptied, failed over, or evicted a key.
var ErrLost = errors.New("fallback: primary had lost counts")

// takeBacks are the refunds and resets of a caller that this instance sends to primary. While one
// may still be carried out, or was since a count, a lower count is no proof of a loss.
type takeBacks struct {
	changes uint32    // how often one began or ended
	open    int32     // under way
	until   time.Time // when those have no effect any more whose answers were lost
}

func (t *takeBacks) begin() { t.changes, t.open = t.changes+1, t.open+1 }

// end ends one. Without an answer it may still be carried out until an instant.
func (t *takeBacks) end(answered bool, until time.Time) {
	t.changes, t.open = t.changes+1, t.open-1
	if !answered {
		t.until = later(t.until, until)
	}
}

// noneSince reports whether none may have been carried out since there were so many changes.
func (t *takeBacks) noneSince(changes uint32, now time.Time) bool {
	return t.changes == changes && t.open == 0 && !now.Before(t.until)
}

// takeBack begins a visit's call that has primary take back the cost of the request, of the period
// that taken is of.
func (v *visit) takeBack(taken *weir.Result) {
	v.verb, v.back = weir.OpReturn, *taken
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.a.back.begin()
}

// tookBack ends a takeBack.
func (v *visit) tookBack(err error) error {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.a.back.end(err == nil, v.back.ExpiresAt)
	return sent(err)
}

// chargeRate begins a charge, and returns its end. At another limit than that of the last count a
// token bucket counts otherwise from then on, so that a lower count proves as little as after a
// take-back.
func (v *visit) chargeRate() (end func(answered bool)) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	if v.a.counted.limit == v.r.Limit {
		return func(bool) {}
	}
	v.a.back.begin()
	return func(answered bool) {
		v.a.mu.Lock()
		defer v.a.mu.Unlock()
		v.a.back.end(answered, v.cfg.Now().Add(v.length()))
	}
}

// clockSlack is by how much more time may pass on primary's clock than here between two calls; and
// for each 1024 s a second more.
const clockSlack = 100 * time.Millisecond

// fasterRate is how many times faster than here tokens may flow in at another instance, as while a
// fleet gets another rate.
const fasterRate = 8

// least returns the least that primary still counts of c at now if it has lost nothing, and nothing
// was taken back. It is 0 where that is not known.
func (v *visit) least(c *count, now time.Time) uint64 {
	ago := max(0, now.Sub(c.at))
	ago += clockSlack + ago/1024
	if c.total == 0 || !now.Before(c.until) {
		return 0
	}
	switch c.falls {
	case atOnce:
		return c.total
	case oneByOne: // a part of a token counts as one
		_, each, _ := v.about.Until(v.r, c.until)
		return c.total - min(c.total, fasterRate*uint64(ago/max(1, each))+2)
	case withWindows: // at worst all of it is of the window before, and rounded up
		if window := c.until.Add(-v.length()).Sub(c.at); ago < window {
			return uint64(float64(c.total-1) * float64(window-ago) / float64(window))
		}
	}
	return 0
}

// below reports whether c, an answer of now, proves that primary has lost a count that it had
// before the call.
func (v *visit) below(c, known *count, now time.Time) bool {
	switch {
	case c.limit != known.limit: // of a token bucket of another rate
		return false
	case known.falls == atOnce && c.until.Sub(known.until).Abs() >= v.length()/2: // of another window
		return false
	}
	return c.total < v.least(known, now)
}

// remembersNothing records that primary does not reconcile: it does not remember when something was
// taken back, so that a count is brought only after a failed call.
func (v *visit) remembersNothing() {
	v.blind.Store(true)
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.a.lost = false
}

// learn records c, the count of an answer of now to a call that brought b; whole is false if it is
// no count of a period. A count that is too low is not recorded: the next call brings the last one,
// as after a failure. If primary is not raised to that, another instance has taken something back.
// note returns the count that primary had lost and has again, or 0. The account is locked.
func (v *visit) note(b *weir.Backlog, c count, now time.Time, whole bool) (restored uint64) {
	a, brought := v.a, b != nil && b.Counted != nil
	comparable := !v.blind.Load() && a.back.noneSince(v.changes, now)
	switch {
	case a.lost && (!brought || !comparable):
		return 0
	case a.lost:
		if !v.below(&c, &a.counted, now) {
			restored = b.Counted.TotalRequests
		} else {
			a.counted.total, a.counted.at = c.total, c.at
		}
		a.lost = false
		a.back.changes++ // calls under way may not have brought it: they prove nothing
		a.counted.changes = a.back.changes
		c.changes = a.back.changes
	case !comparable || brought:
	case v.known.changes == v.changes && now.Sub(v.began) <= v.cfg.Timeout &&
		v.below(&c, &v.known, now):
		a.lost = true
		return 0
	case a.counted.changes == v.changes && a.counted.falls == atOnce && v.below(&c, &a.counted, now):
		return 0 // the answer to an earlier call
	}
	if whole {
		a.counted = c
	}
	return restored
}
