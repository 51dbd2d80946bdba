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
var errTimeout = errors.New("fallback: primary did not answer in time")
var errExited = errors.New("fallback: primary ended its goroutine")

// operation is one call of primary or local.
type operation func(ctx context.Context, r *weir.Request) (*weir.Result, error)

// attempt runs op within timeout and calls end exactly once: when op returns, panics or exits, or,
// with errTimeout, when timeout is over. A primary that ignores its context delays no caller.
func (f *Fallback) attempt(ctx context.Context, timeout time.Duration, op func(context.Context) error,
	end func(error)) {
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
