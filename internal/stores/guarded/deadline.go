package guarded

import (
	"context"
	"sync/atomic"
	"time"
)

// part is the part of the timeout in which calls that share a deadline begin: the last of them has
// so much less time.
const part = 32

// Deadlines makes the contexts that end calls after Timeout; calls share them. A context with a
// timer of its own is six allocations and a microsecond for each call, of which Redis takes ten. It
// is safe for concurrent use.
type Deadlines struct {
	Timeout time.Duration // set before the first call

	newest atomic.Pointer[deadline]
}

// deadline is shared by all calls that begin before next.
type deadline struct {
	context.Context
	next time.Time
}

// Within returns a context that ends with ctx, and after Timeout or up to a 32nd of it sooner.
// Calls that cannot be canceled share one, if they begin at nearly the same time; one that ends
// sooner anyway keeps its own.
func (s *Deadlines) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return s.Detached(ctx), func() {}
	}
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= s.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.Timeout)
}

// Detached is Within for a call that goes on when ctx ends.
func (s *Deadlines) Detached(ctx context.Context) context.Context {
	shared := s.newest.Load()
	if shared == nil || time.Until(shared.next) <= 0 { // cheaper than time.Now
		now := time.Now()
		c, cancel := context.WithDeadline(context.Background(), now.Add(s.Timeout))
		context.AfterFunc(c, cancel)
		shared = &deadline{c, now.Add(s.Timeout / part)}
		s.newest.Store(shared) // Two at once make one too many, and that is all.
	}
	return valued{shared, ctx}
}

// valued is a deadline with the values of the caller's context, which the hooks of a client may
// want.
type valued struct {
	*deadline
	values context.Context
}

func (v valued) Value(key any) any { return v.values.Value(key) }
