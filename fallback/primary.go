package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/breaker"
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

// operation is one call of primary or local.
type operation func(ctx context.Context, r *weir.Request) (*weir.Result, error)

// call has primary do op, unless b is open: then it starts a probe, if one is due. It waits for at
// most Timeout, half of the time that the caller has left, or until the caller gives up. The error
// is errUndecided, or one for the caller. The operation continues without its caller, as the
// pending, and b records how it ends; if b is nil nothing is recorded.
func (f *Fallback) call(
	ctx context.Context, b *breaker.Breaker, a *account, r *weir.Request, op operation,
) (*weir.Result, *pending, error) {
	if b != nil && !b.Closed() {
		f.startProbe(b, r)
		return nil, nil, errUndecided
	}
	wait := f.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if f.prompt && wait == f.cfg.Timeout {
		res, err := f.callHere(ctx, b, r, op)
		return res, nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	own, p, done := *r, &pending{f: f, a: a}, make(chan error, 1) // own: the caller may reuse r before op ends
	var res *weir.Result                                          // read only after op has ended
	a.users.Add(1)                                                // it stays until op has ended
	go f.attempt(context.WithoutCancel(ctx), f.cfg.Timeout, func(ctx context.Context) (err error) {
		defer a.users.Add(-1)
		res, err = op(ctx, &own)
		p.end(err == nil && (res == nil || res.Allowed()))
		return err
	}, func(err error) {
		if err != nil {
			p.end(false)
		}
		done <- f.judge(b, err)
	})
	select {
	case err := <-done:
		if err != nil {
			return nil, p, err
		}
		return res, p, nil
	case <-timer.C:
		if wait < f.cfg.Timeout {
			f.stats.shortDeadlines.Add(1)
		}
		return nil, p, errUndecided
	case <-ctx.Done():
		return nil, p, fmt.Errorf("fallback: %w", ctx.Err())
	}
}

// callHere is call of a prompt primary, on this goroutine.
func (f *Fallback) callHere(
	ctx context.Context, b *breaker.Breaker, r *weir.Request, op operation,
) (*weir.Result, error) {
	bounded, cancel := f.deadlines.Within(context.WithoutCancel(ctx))
	defer cancel()
	var start, end time.Time
	if f.cfg.OnCall != nil {
		start = time.Now()
	}
	res, err := op(bounded, r)
	if f.cfg.OnCall != nil {
		end = time.Now()
	}
	judged := f.judge(b, err)
	f.called(end.Sub(start), err)
	switch {
	case judged == nil:
		return res, nil
	case judged == errUndecided && ctx.Err() != nil:
		judged = fmt.Errorf("fallback: %w", ctx.Err())
	}
	return nil, judged
}

// attempt runs op within timeout and calls end once: when op returns, panics or exits, or, with
// errTimeout, when timeout is over. A primary that ignores its context delays no caller.
func (f *Fallback) attempt(
	ctx context.Context, timeout time.Duration, op func(context.Context) error, end func(error),
) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var ended atomic.Bool
	endOnce := func(err error) {
		if took := time.Since(start); !ended.Swap(true) {
			end(err)
			f.called(took, err)
		}
	}
	defer context.AfterFunc(bounded, func() { endOnce(errTimeout) })()
	err := errExited
	defer func() { endOnce(err) }()
	err = f.safely(func() error { return op(bounded) })
}

// judge records the end of a call in b, and returns its error for the caller. Errors that depend on
// the request alone are not recorded.
func (f *Fallback) judge(b *breaker.Breaker, err error) error {
	var failure error
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return err
	case err == errTimeout, f.isDown(err):
		f.stats.failures.Add(1)
		failure = err
	}
	if b != nil {
		f.notify(b.Record(f.cfg.Now(), failure))
	}
	if err == nil {
		return nil
	}
	f.report(err)
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
