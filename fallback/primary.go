package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// errUndecided: primary did not decide, so that somebody else must. It stays inside the package.
var errUndecided = errors.New("fallback: primary did not decide")

// The failures of primary that are no errors of its own.
var (
	errTimeout = errors.New("fallback: primary did not answer in time")
	errNothing = errors.New("fallback: neither a result nor an error")
	errExited  = errors.New("fallback: primary ended its goroutine")
)

// operation is one call of primary.
type operation func(ctx context.Context) (*weir.Result, error)

// call calls primary and waits for it, at most Timeout, half of the time the caller has left, or until the caller gives
// up. The error is errUndecided, or one for the caller. The operation goes on without its caller and is judged by itself:
// a goroutine of its own costs about a microsecond, and holds nobody if primary ignores its context. If b is nil it is not
// judged.
func (f *Fallback) call(ctx context.Context, b *breaker, op operation) (*weir.Result, error) {
	wait := f.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var res *weir.Result // read only if op is done
	done := make(chan error, 1)
	go f.attempt(context.WithoutCancel(ctx), f.cfg.Timeout, func(ctx context.Context) (err error) {
		if res, err = op(ctx); res == nil && err == nil {
			err = errNothing
		}
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

// attempt runs op within timeout and calls end exactly once: when op returns, panics or exits, or, with errTimeout, when
// timeout is over.
func (f *Fallback) attempt(ctx context.Context, timeout time.Duration, op func(context.Context) error, end func(error)) {
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

// judge gives b the verdict on a call, and returns its error for the caller.
func (f *Fallback) judge(b *breaker, err error) error {
	var failure error
	switch {
	case errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return err // nothing learned about primary
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
	_ = f.safely(func() error { down = f.cfg.IsDown(err); return nil })
	return down
}

// report hands an error to OnError.
func (f *Fallback) report(err error) {
	_ = f.safely(func() error { f.cfg.OnError(err); return nil })
}

// notify hands a change to OnChange.
func (f *Fallback) notify(c *Change) {
	if c != nil {
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
