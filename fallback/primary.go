package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/breaker"
	"github.com/weirgo/weir/internal/wrap"
)

// errUndecided reports that primary did not decide, so local does. Callers never see it.
var errUndecided = breaker.ErrNoAnswer

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
func calling(op weir.Op, taken *weir.Result) operation {
	return func(v *visit, ctx context.Context) (*weir.Result, error) { return v.doPrimary(ctx, op, v.r, taken) }
}

// call has primary do op, unless the breaker is open. It waits for at most Timeout, half of the time
// that the caller has left, or until the caller gives up, which it may not notice with a Prompt
// primary. The error is errUndecided, or one for the caller. The operation may continue without its
// caller, as v.late.
func (v *visit) call(ctx context.Context, op operation) (res *weir.Result, err error) {
	if v.b != nil && !v.server.Up(v.b, v.r.Key) {
		return nil, errUndecided
	}
	wait := v.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if v.prompt && wait == v.cfg.Timeout {
		err = v.server.Call(ctx, v.b, v.began, func(ctx context.Context) (err error) {
			res, err = op(v, ctx)
			return err
		})
		if err == errUndecided && ctx.Err() != nil {
			err = fmt.Errorf("fallback: %w", ctx.Err())
		}
		return res, err
	}
	done := v.detach(context.WithoutCancel(ctx), op)
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return v.late.res, nil
	case <-time.After(wait):
		if wait < v.cfg.Timeout {
			v.stats.shortDeadlines.Add(1)
		}
		return nil, errUndecided
	case <-ctx.Done():
		return nil, fmt.Errorf("fallback: %w", ctx.Err())
	}
}

// send is call for a change that may be lost: no answer is no error, nor is a primary that lacks the
// method.
func (v *visit) send(ctx context.Context, op operation) error {
	if _, err := v.call(ctx, op); err != errUndecided {
		return wrap.Supported(err)
	}
	return nil
}

// detach has primary do op on a goroutine of its own, for which nobody has to wait.
func (v *visit) detach(ctx context.Context, op operation) (done <-chan error) {
	ended, late, r := make(chan error, 1), new(pending), *v.r
	v.late, v.r = late, &r // the caller may reuse its request before op ends
	v.a.users.Add(1)       // the account stays until op has ended
	v.server.Go(ctx, v.b, func(ctx context.Context) (err error) {
		defer v.end()
		late.res, err = op(v, ctx)
		v.settle(err == nil && (late.res == nil || late.res.Allowed()))
		return err
	}, func(err error) {
		if err != nil {
			v.settle(false)
		}
		ended <- err
	})
	return ended
}

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. What local admits is a debt only if primary has not counted the request, and that is
// known when the call ends.
type pending struct {
	res *weir.Result // read only if the call ended in time without an error

	// Guarded by the account's mu.
	ended, counted bool      // the call has ended; primary has counted the request
	cost           uint64    // that local has admitted meanwhile, or 0
	until          time.Time // when that counts no more
}

// settle records that the call has ended, and whether primary counted the request. A call that
// ignores its context ends twice: at its timeout, and when it returns.
func (v *visit) settle(counted bool) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	p := v.late
	switch now := v.cfg.Now(); {
	case p.cost == 0: // local has not decided, or has denied
	case !p.ended && !counted:
		v.a.addDebt(p.cost, p.until, now)
	case p.ended && !p.counted && counted:
		v.a.refund(p.cost, now)
	}
	p.ended, p.counted = true, p.counted || counted
}

// refused reports whether err depends on the request alone.
func refused(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, weir.ErrID) || errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit)
}

// probe has primary decide on a request of a probe, after it was warmed up. Its key is new, so that
// primary must write to admit it: a server that can only be read is not healthy.
func (f *Fallback) probe(ctx context.Context, key string) (called time.Time, err error) {
	r := &weir.Request{Key: key, Limit: 1 << 40, Duration: time.Second}
	called = time.Now()
	if err = wrap.Supported(f.primary.Warm(ctx, r)); err == nil {
		called = time.Now()
		_, err = f.primary.Run(ctx, r)
	}
	return called, err
}
