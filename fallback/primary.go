package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
)

// sent returns the error of a change that may be lost.
func sent(err error) error {
	if err == errUndecided {
		return nil
	}
	return supported(err)
}

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. An admission of local is a debt only if primary has not counted the request in time.
// That is known when the call ends. Guarded by the account's mu.
type pending struct {
	known
	cost  uint64    // that local has admitted meanwhile, or 0
	until time.Time // when that counts no more
}

// known are the facts of a pending call: that it has ended, the Result by which primary has counted
// the request, and that its caller was denied or has left.
type known struct {
	ended   bool
	counted *weir.Result // nil: none; the zero Result of an OpCharge
	unused  bool
}

// inTime reports whether primary has counted the request in the window of w in which local admitted
// the request, or in one that counts there as in a SlidingWindow, and not in the one before. Three
// quarters are less than any window of a Calendar, and more than most of the time that is unknown
// before the first answer.
func (p *pending) inTime(w *windows, length time.Duration) bool {
	return p.counted != nil && (w == nil || w.sliding || p.counted.ExpiresAt.IsZero() ||
		p.until.Sub(p.counted.ExpiresAt) < length/4*3)
}

// by does an op by c.
func by(ctx context.Context, c weir.Counter, op *weir.Op) error {
	was := op.Counter
	op.Counter = c
	c.Do(ctx, []*weir.Op{op})
	op.Counter = was
	return op.Err
}

// supported returns err, or nil if that is of an op that a Counter cannot do.
func supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, bounds.ErrNothing) {
		return nil
	}
	return err
}

// refused reports whether err depends on the request alone: such an err is for the caller, and says
// nothing of the server.
func refused(err error) bool {
	return err != nil && supported(err) == nil ||
		errors.Is(err, weir.ErrID) || errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit)
}
