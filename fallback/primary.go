package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/limits"
)

// Prompt is an optional interface of a primary. Prompt reports whether its calls end with the
// deadline of their context, and neither panic nor exit their goroutine. Such a primary is called
// on the goroutine of the caller, who then may wait for up to Config.Timeout after giving up. The
// strategies of redislimit have it, and those of near pass it on.
type Prompt interface{ Prompt() bool }

// Warmer is an optional interface of a primary. Warm prepares it for decisions on r's key: it
// connects and loads all that decisions need, however long that takes within ctx, and counts
// nothing. Without it, a connection that takes longer than primary's own timeout is never made by a
// probe. The strategies of redislimit have it, and those of near pass it on.
type Warmer interface {
	Warm(ctx context.Context, r *weir.Request) error
}

// operation is one call of primary, for a visit.
type operation func(v *visit, ctx context.Context) (*weir.Result, error)

// calling is the operation that is one method of primary.
func calling(op limits.Op, taken *weir.Result) operation {
	return func(v *visit, ctx context.Context) (*weir.Result, error) {
		return v.doPrimary(ctx, op, v.r, taken)
	}
}

// call has primary do op, unless the breaker is open. It waits for at most Timeout, half of the
// time that the caller has left, or until the caller gives up, which it may not notice with a
// Prompt primary. The error is errUndecided, or one for the caller. The operation may continue
// without its caller, as v.late.
func (v *visit) call(ctx context.Context, op operation) (res *weir.Result, err error) {
	err = v.server.Call(ctx, v.b, v.r.Key, v.began, func(ctx context.Context) (err error) {
		res, err = op(v, ctx)
		return err
	}, func(hurried bool) (func(context.Context) error, func(error)) {
		v.hurried = hurried
		return v.detach(op)
	})
	if err == nil && v.late != nil {
		res = v.late.res
	}
	return res, err
}

// send is call for a change that may be lost: no answer is no error, nor is a primary that lacks
// the method.
func (v *visit) send(ctx context.Context, op operation) error {
	_, err := v.call(ctx, op)
	return sent(err)
}

// sent returns the error of a change that may be lost.
func sent(err error) error {
	if err == errUndecided {
		return nil
	}
	return wrap.Supported(err)
}

// detach returns what has primary do op for v.late, and what is called when that has ended or is
// late.
func (v *visit) detach(op operation) (call func(context.Context) error, end func(error)) {
	late, r := new(pending), *v.r
	v.late, v.r = late, &r // the caller may reuse its request before op ends
	v.a.users.Add(1)       // the account stays until op has ended
	return func(ctx context.Context) (err error) {
		defer v.end()
		late.res, err = op(v, ctx)
		counted := err == nil && (late.res == nil || late.res.Allowed())
		v.settle(ctx, known{ended: true, counted: counted})
		return err
	}, func(error) { v.settle(context.Background(), known{ended: true}) } // nothing once op has ended
}

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. What local admits is a debt only if primary has not counted the request in time. That is
// known when the call ends.
type pending struct {
	res *weir.Result // read only if the call has ended without an error

	// Guarded by the account's mu.
	known
	cost  uint64    // that local has admitted meanwhile, or 0
	until time.Time // when that counts no more
}

// known is what is known of a pending call: that it has ended, that primary has counted the
// request, and that its caller was denied or has left.
type known struct{ ended, counted, unused bool }

// inTime reports whether primary has counted the request in the window of w in which local admitted
// it, or in one that counts there as in a SlidingWindow, and not in the one before. Three quarters
// are less than any window of a Calendar, and more than most of what is unknown before the first
// answer.
func (p *pending) inTime(w *windows, length time.Duration) bool {
	return p.counted && (w == nil || w.sliding || p.res == nil ||
		p.until.Sub(p.res.ExpiresAt) < length/4*3)
}

// settle records what is known now. What primary has counted for a caller that was denied or has
// left, it is to give back. A call that ignores its context ends twice: at its timeout, and when it
// returns.
func (v *visit) settle(ctx context.Context, now known) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	p, was := v.late, v.late.known
	p.known = known{was.ended || now.ended, was.counted || now.counted, was.unused || now.unused}
	switch {
	case p.cost == 0: // local has not decided, or has denied
	case p.ended && !was.ended && !p.inTime(v.windows, v.length()):
		v.a.debts.Add(p.cost, p.until, v.cfg.Now())
	case was.ended && !was.counted && p.inTime(v.windows, v.length()):
		v.a.debts.Refund(p.cost, v.cfg.Now())
	}
	if p.counted && p.unused && (!was.counted || !was.unused) && !v.a.replaced.Load() {
		go func(v visit) { // of its own: the call is another late one
			v.a.recount(0, wrap.Cost(v.r))
			_ = v.takeBack(context.WithoutCancel(ctx), p.res)
		}(*v)
	}
}

// refused reports whether err depends on the request alone: it is for the caller, and says nothing
// of the server.
func refused(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, weir.ErrID) || errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit)
}

// probe has primary decide on a request of a probe, after it was warmed up. Its key is new, so that
// primary must write to admit it: a server that can only be read is not healthy.
func (f *Fallback) probe(ctx context.Context, key string) (called time.Time, err error) {
	r := &weir.Request{Key: key, Limit: 1 << 40, Duration: time.Second}
	called = time.Now()
	err = wrap.Supported(f.primary.Warm(ctx, r))
	if err == nil {
		called = time.Now()
		_, err = f.primary.Run(ctx, r)
	}
	return called, err
}
