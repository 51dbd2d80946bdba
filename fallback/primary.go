package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// errUndecided reports that primary did not decide, so local does. Callers never see it.
var errUndecided = errors.New("fallback: primary did not decide")

// The failures that no error of primary describes.
var (
	errTimeout = errors.New("fallback: primary did not answer in time")
	errExited  = errors.New("fallback: primary ended its goroutine")
)

// operation is one call of primary.
type operation func(ctx context.Context, r *weir.Request) (*weir.Result, error)

// call runs op and waits for it: at most Timeout, half of the time that the caller has left, or
// until the caller gives up. The error is errUndecided, or one for the caller. The operation goes
// on without its caller, and b records how it ends; if b is nil nothing is recorded. Its goroutine
// costs about a microsecond, and a primary that ignores its context delays no caller.
func (f *Fallback) call(ctx context.Context, b *breaker, r *weir.Request, op operation) (*weir.Result, error) {
	wait := f.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	own := *r            // the caller may reuse r before op ends
	var res *weir.Result // read only after op has ended
	done := make(chan error, 1)
	go f.attempt(context.WithoutCancel(ctx), f.cfg.Timeout, func(ctx context.Context) (err error) {
		res, err = op(ctx, &own)
		return err
	}, func(err error) { done <- f.judge(b, err) })
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return res, nil
	case <-timer.C:
		return nil, errUndecided
	case <-ctx.Done():
		return nil, fmt.Errorf("fallback: %w", ctx.Err())
	}
}

// apply is call for an operation that decides nothing. While the breaker is open it is not called.
func (f *Fallback) apply(ctx context.Context, r *weir.Request, op func(context.Context, *weir.Request) error) error {
	b := f.breakers.of(r.Key)
	if !b.closed() {
		return errUndecided
	}
	_, err := f.call(ctx, b, r, func(ctx context.Context, r *weir.Request) (*weir.Result, error) { return nil, op(ctx, r) })
	return err
}

// attempt runs op within timeout and calls end exactly once: when op returns, panics or exits, or,
// with errTimeout, when timeout is over.
func (f *Fallback) attempt(ctx context.Context, timeout time.Duration, op func(context.Context) error, end func(error)) {
	if f.cfg.OnCall != nil {
		end = f.measured(time.Now(), end)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	inTime := context.AfterFunc(bounded, func() { end(errTimeout) })
	err := errExited
	defer func() {
		if inTime() {
			end(err)
		}
	}()
	err = f.safely(func() error { return op(bounded) })
}

// measured returns end, followed by OnCall. A method that primary lacks was no call.
func (f *Fallback) measured(start time.Time, end func(error)) func(error) {
	return func(err error) {
		took := time.Since(start)
		if end(err); !errors.Is(err, errors.ErrUnsupported) {
			_ = f.safely(func() error { f.cfg.OnCall(took, err); return nil })
		}
	}
}

// judge records the end of a call in b, and returns its error for the caller. Errors that depend on
// the request alone are not recorded.
func (f *Fallback) judge(b *breaker, err error) error {
	var failure error
	switch {
	case errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return err
	case err == errTimeout, err != nil && f.isDown(err):
		f.stats.failures.Add(1)
		failure = err
	}
	if b != nil {
		f.notify(b.record(f.cfg.Now(), failure))
	}
	if err == nil {
		return nil
	}
	f.report(err)
	return errUndecided
}

// isDown reports whether err counts against primary. If Config.IsDown panics, it does.
func (f *Fallback) isDown(err error) bool {
	down := true
	if f.cfg.IsDown != nil {
		_ = f.safely(func() error { down = f.cfg.IsDown(err); return nil })
	}
	return down
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
