package turns

import (
	"context"
	"sync/atomic"
	"time"
)

// MaxLate bounds the lateness that a line catches up: no decision is made as of an instant that is
// longer ago. It covers a pause of a process whose share of a CPU is used up.
const MaxLate = 100 * time.Millisecond

// Due is the context of a decision on the first in a line, who was due at an instant that may have
// passed. A timer is late, and so are those who wait for the one before: a decision as of the
// instants at which they were due has the line keep its rate.
type Due struct {
	context.Context
	at   time.Time
	used atomic.Bool
}

type dueKey struct{}

// At returns ctx for a decision as of an instant, the zero time for one at the present.
func At(ctx context.Context, at time.Time) *Due { return &Due{Context: ctx, at: at} }

// Value implements context.Context.
func (d *Due) Value(key any) any {
	if _, ok := key.(dueKey); ok {
		return d
	}
	return d.Context.Value(key)
}

// Used reports whether a decision was made as of the instant, or the nearest possible one.
func (d *Due) Used() bool { return d.used.Load() }

// Line notes that callers wait in a line that is no queue of this package, until end: a decision
// looks for a Due only while somebody waits.
func Line() (end func()) {
	waiting.Add(1)
	return func() { waiting.Add(-1) }
}

// UseDue returns the instant as of which to decide, for a strategy that does so. The zero time
// stands for the present.
func UseDue(ctx context.Context) (at time.Time) {
	if d := find(ctx); d != nil {
		d.used.Store(true)
		at = d.at
	}
	return at
}

// IsDue reports whether UseDue returns an instant. It is inlined: where nobody waits it costs a
// load.
func IsDue(ctx context.Context) bool { return Any() && find(ctx) != nil }

func find(ctx context.Context) *Due {
	if ctx == nil {
		return nil
	}
	d, _ := ctx.Value(dueKey{}).(*Due)
	if d == nil || d.at.IsZero() {
		return nil
	}
	return d
}
