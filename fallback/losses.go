package fallback

import (
	"errors"
	"time"
)

// ErrLost is the error that Config.OnError gets when primary had lost counts although no call
// failed: primary was emptied, failed over, or evicted a key.
var ErrLost = errors.New("fallback: primary had lost counts")

// takeBacks are the refunds and resets of a caller that this instance sends to primary. While one
// may still be carried out, or was since a count, a lower count is no proof of a loss.
type takeBacks struct {
	changes uint32    // how often one began or ended
	open    int32     // under way
	until   time.Time // when those have no effect any more whose answers were lost
}

func (t *takeBacks) begin() { t.changes, t.open = t.changes+1, t.open+1 }

// end ends one. Without an answer a take-back may still be carried out until an instant.
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
