package redislimit

import (
	"context"
	"sync/atomic"
	"time"
)

// A context with a timer of its own is six allocations and a microsecond for each decision, of
// which Redis takes ten. So calls that cannot be canceled share one, if they begin at nearly the
// same time.

// share is the part of the timeout in which calls begin that share a deadline: the last of them has
// so much less time.
const share = 32

// deadlines makes the contexts that end a call.
type deadlines struct {
	timeout time.Duration
	newest  atomic.Pointer[deadline]
}

// deadline is shared by all calls that begin before next.
type deadline struct {
	context.Context
	next time.Time
}

// within returns a context that ends with ctx, and after the timeout or up to a 32nd of it sooner.
func (d *deadlines) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() != nil {
		return context.WithTimeout(ctx, d.timeout)
	}
	now := time.Now()
	shared := d.newest.Load()
	if shared == nil || !now.Before(shared.next) {
		c, cancel := context.WithDeadline(context.Background(), now.Add(d.timeout))
		context.AfterFunc(c, cancel)
		shared = &deadline{c, now.Add(d.timeout / share)}
		d.newest.Store(shared) // Two at once make one too many, and that is all.
	}
	return valued{shared, ctx}, func() {}
}

// valued is a deadline with the values of the caller's context, which the hooks of a client may
// want.
type valued struct {
	*deadline
	values context.Context
}

func (v valued) Value(key any) any { return v.values.Value(key) }
