package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// errUndecided reports that primary did not decide, so local does. Callers never see it.
var errUndecided = errors.New("fallback: primary did not decide")

// The failures that no error of primary describes.
var errTimeout = errors.New("fallback: primary did not answer in time")
var errExited = errors.New("fallback: primary ended its goroutine")

// Prompt is an optional interface of a primary. Prompt reports whether its calls end with the
// deadline of their context, and neither panic nor exit their goroutine. Such a primary is called
// on the goroutine of the caller, who then may wait for up to Config.Timeout after giving up. The
// strategies of redislimit have it, and those of near pass it on.
type Prompt interface{ Prompt() bool }

// operation is one call of primary, for a visit.
type operation func(v *visit, ctx context.Context) (*weir.Result, error)

// calling is the operation that is one method of primary.
func calling(op weir.Op, taken *weir.Result) operation {
	return func(v *visit, ctx context.Context) (*weir.Result, error) { return v.doPrimary(ctx, op, v.r, taken) }
}

// call has primary do op, unless the breaker is open: then it starts a probe, if one is due. It
// waits for at most Timeout, half of the time that the caller has left, or until the caller gives
// up, which it may not notice with a Prompt primary. The error is errUndecided, or one for the
// caller. The operation may continue without its caller, as v.late, and the breaker records how it
// ends.
func (v *visit) call(ctx context.Context, op operation) (*weir.Result, error) {
	if v.b != nil && !v.b.Closed() {
		v.startProbe()
		return nil, errUndecided
	}
	wait := v.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if v.prompt && wait == v.cfg.Timeout {
		return v.callHere(ctx, op)
	}
	v.callAside(context.WithoutCancel(ctx), op)
	select {
	case err := <-v.late.done:
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

// callHere is call of a prompt primary, on this goroutine.
func (v *visit) callHere(ctx context.Context, op operation) (*weir.Result, error) {
	res, err := op(v, v.deadlines.Detached(ctx))
	now := v.cfg.Now()
	v.called(now.Sub(v.began), err)
	if err = v.judge(err, now); err == errUndecided && ctx.Err() != nil {
		err = fmt.Errorf("fallback: %w", ctx.Err())
	}
	return res, err
}

// callAside is call on a goroutine of its own, for which nobody has to wait.
func (v *visit) callAside(ctx context.Context, op operation) {
	own, r := *v, *v.r // the caller may reuse its request before op ends
	own.r = &r
	c := &pending{visit: &own, done: make(chan error, 1)}
	v.late = c
	v.a.users.Add(1) // the account stays until op has ended
	go v.attempt(ctx, v.cfg.Timeout, func(ctx context.Context) error {
		defer own.end()
		res, err := op(&own, ctx)
		c.res = res
		c.end(err == nil && (res == nil || res.Allowed()))
		return err
	}, func(err error) {
		if err != nil {
			c.end(false)
		}
		c.done <- own.judge(err, v.cfg.Now())
	})
}

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. What local admits is a debt only if primary has not counted the request, and that is
// known when the call ends.
type pending struct {
	*visit
	done chan error   // how it ended, once
	res  *weir.Result // read only if that is nil

	// Guarded by a.mu.
	ended, counted bool      // the call has ended; primary has counted the request
	cost           uint64    // that local has admitted meanwhile, or 0
	until          time.Time // when that counts no more
}

// end records that the call has ended, and whether primary counted the request. A call that ignores
// its context ends twice: at its timeout, and when it returns.
func (p *pending) end(counted bool) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	switch now := p.cfg.Now(); {
	case p.cost == 0: // local has not decided, or has denied
	case !p.ended && !counted:
		p.a.addDebt(p.cost, p.until, now)
	case p.ended && !p.counted && counted:
		p.a.refund(p.cost, now)
	}
	p.ended, p.counted = true, p.counted || counted
}

// attempt runs op within timeout and calls end once: when op returns, panics or exits, or, with
// errTimeout, when timeout is over. A primary that ignores its context delays no caller.
func (f *Fallback) attempt(
	ctx context.Context, timeout time.Duration, op func(context.Context) error, end func(error),
) {
	start := f.cfg.Now()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var ended atomic.Bool
	endOnce := func(err error) {
		if took := f.cfg.Now().Sub(start); !ended.Swap(true) {
			end(err)
			f.called(took, err)
		}
	}
	defer context.AfterFunc(bounded, func() { endOnce(errTimeout) })()
	err := errExited
	defer func() { endOnce(err) }()
	err = f.safely(func() error { return op(bounded) })
}

// judge records the end of a call in the breaker, and returns its error for the caller. Errors that
// depend on the request alone are not recorded.
func (v *visit) judge(err error, now time.Time) error {
	var failure error
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return err
	case err == errTimeout, v.isDown(err):
		v.stats.failures.Add(1)
		failure = err
	}
	if v.b != nil {
		v.notify(v.b.Record(now, failure))
	}
	if err == nil {
		return nil
	}
	v.report(err)
	return errUndecided
}

// called calls Config.OnCall. A method that primary lacks was no call.
func (f *Fallback) called(took time.Duration, err error) {
	if f.cfg.OnCall != nil && !errors.Is(err, errors.ErrUnsupported) {
		_ = f.safely(func() error { f.cfg.OnCall(took, err); return nil })
	}
}

// isDown reports whether err counts against primary. If Config.IsDown panics, it does.
func (f *Fallback) isDown(err error) (down bool) {
	return f.cfg.IsDown == nil || f.safely(func() error { down = f.cfg.IsDown(err); return nil }) != nil || down
}

// report calls Config.OnError.
func (f *Fallback) report(err error) {
	if f.cfg.OnError != nil {
		_ = f.safely(func() error { f.cfg.OnError(err); return nil })
	}
}

// notify calls Config.OnChange, unless c is nil.
func (f *Fallback) notify(c *Change) {
	if c != nil && f.cfg.OnChange != nil {
		_ = f.safely(func() error { f.cfg.OnChange(*c); return nil })
	}
}

// safely calls primary or a user's function, with no lock held, and returns its panic as an error.
func (f *Fallback) safely(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f.stats.panics.Add(1)
			err = fmt.Errorf("fallback: a panic: %v", p)
		}
	}()
	return call()
}
