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

// sight is the knowledge of a caller when a call of primary began.
type sight struct {
	known   count  // the last of primary
	changes uint32 // of the account's takeBacks
}

// note records in the account, which is locked, c: the count of an answer of now, in p, to a call
// that began at c.at and brought b. whole is false if it is no count of a period. A count that is
// too low is not recorded: the next call brings the last one, as after a failure. If primary is not
// raised to that, another instance has taken something back. note returns the count that primary
// had lost and has again, or 0.
func (s *sight) note(
	a *account, p period, b *weir.Backlog, c count, now time.Time, whole bool,
) (restored uint64) {
	brought := b != nil && b.Counted != nil
	comparable := !p.f.blind.Load() && a.back.noneSince(s.changes, now)
	switch {
	case a.lost && (!brought || !comparable):
		return 0
	case a.lost:
		if !p.below(&c, &a.counted, now) {
			restored = b.Counted.TotalRequests
		} else {
			a.counted.total, a.counted.at = c.total, c.at
		}
		a.lost = false
		a.back.changes++ // calls under way may not have brought it: they prove nothing
		a.counted.changes = a.back.changes
		c.changes = a.back.changes
	case !comparable || brought:
	case s.known.changes == s.changes && now.Sub(c.at) <= p.f.cfg.Timeout &&
		p.below(&c, &s.known, now):
		a.lost = true
		return 0
	case a.counted.changes == s.changes && a.counted.falls == atOnce && p.below(&c, &a.counted, now):
		return 0 // the answer to an earlier call
	}
	if whole {
		a.counted = c
	}
	return restored
}
