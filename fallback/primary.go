package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// errUndecided: primary was not called or did not decide, so that somebody else must. It stays inside the package.
var errUndecided = errors.New("fallback: primary did not decide")

// The failures of primary that are no errors of its own.
var (
	errTimeout = errors.New("fallback: primary did not answer in time")
	errNothing = errors.New("fallback: neither a result nor an error")
	errExited  = errors.New("fallback: primary ended its goroutine")
)

// operation is one call of primary.
type operation func(ctx context.Context) (*weir.Result, error)

type answer struct {
	res *weir.Result
	err error
}

// call calls primary and waits for it, at most Timeout, half of the time the caller has left, or until the caller gives
// up. The error is errUndecided, or one for the caller. The operation goes on without its caller and is judged by itself:
// a goroutine of its own costs about a microsecond, and holds nobody if primary ignores its context. If b is nil it is not
// judged.
func (f *Fallback) call(ctx context.Context, b *breaker, op operation) (*weir.Result, error) {
	timer := time.NewTimer(f.maxWait(ctx))
	defer timer.Stop()
	done := make(chan answer, 1)
	go f.attempt(context.WithoutCancel(ctx), b, op, done)
	select {
	case a := <-done:
		return a.res, a.err
	case <-timer.C:
		return nil, errUndecided
	case <-ctx.Done():
		return nil, fmt.Errorf("fallback: %w", ctx.Err())
	}
}

// maxWait returns how long a caller waits for primary.
func (f *Fallback) maxWait(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(f.cfg.Timeout, time.Until(deadline)/2)
	}
	return f.cfg.Timeout
}

// attempt runs op within Timeout and gives b its verdict exactly once: when op returns, panics or exits, or when Timeout
// is over.
func (f *Fallback) attempt(ctx context.Context, b *breaker, op operation, done chan<- answer) {
	bounded, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	inTime := context.AfterFunc(bounded, func() { f.failed(b, errTimeout) })
	a := answer{err: errExited}
	defer func() { done <- a }()
	defer func() {
		if p := recover(); p != nil {
			f.stats.panics.Add(1)
			a = answer{nil, fmt.Errorf("fallback: primary panicked: %v", p)}
		}
		if inTime() {
			a.err = f.judge(b, a.err)
		} else if a.err != nil {
			a.err = errUndecided
		}
	}()
	if a.res, a.err = op(bounded); a.res == nil && a.err == nil {
		a.err = errNothing
	}
}

// judge gives b the verdict on a call that ended in time, and returns its error for the caller.
func (f *Fallback) judge(b *breaker, err error) error {
	switch {
	case err == nil:
		f.succeeded(b)
		return nil
	case errors.Is(err, errUndecided), errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit):
		return err // nothing learned about primary
	case f.isDown(err):
		f.failed(b, err)
	default:
		f.report(err)
		f.succeeded(b)
	}
	return errUndecided
}

func (f *Fallback) succeeded(b *breaker) {
	if b != nil {
		f.notify(b.record(f.cfg.Now(), nil))
	}
}

func (f *Fallback) failed(b *breaker, err error) {
	f.stats.failures.Add(1)
	if b != nil {
		f.notify(b.record(f.cfg.Now(), err))
	}
	f.report(err)
}

// isDown reports whether err counts against primary. If Config.IsDown panics, it does.
func (f *Fallback) isDown(err error) (down bool) {
	if f.cfg.IsDown == nil {
		return true
	}
	down = true
	f.guarded(func() { down = f.cfg.IsDown(err) })
	return down
}

// report hands an error to OnError.
func (f *Fallback) report(err error) {
	if f.cfg.OnError != nil {
		f.guarded(func() { f.cfg.OnError(err) })
	}
}

// notify hands a change to OnChange.
func (f *Fallback) notify(c *Change) {
	if c != nil && f.cfg.OnChange != nil {
		f.guarded(func() { f.cfg.OnChange(*c) })
	}
}

// guarded calls a user's function, with no lock held, and drops its panic.
func (f *Fallback) guarded(callback func()) {
	defer func() {
		if recover() != nil {
			f.stats.panics.Add(1)
		}
	}()
	callback()
}
