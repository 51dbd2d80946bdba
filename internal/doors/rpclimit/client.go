package rpclimit

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/weirgo/weir/httpclient"
)

// NotSent returns the code of a client's call that [httpclient.Transport.Admit] refused with err,
// and how long it would have had to wait: 0 if it can never pass, or if the Strategy could not
// decide, which is Unavailable. ctx is the context of the call: a Strategy's own timeout is
// Unavailable too.
func NotSent(ctx context.Context, err error) (code Code, wait time.Duration) {
	code = Unavailable
	var over *httpclient.LimitError
	limited := errors.As(err, &over)
	if limited {
		code = ResourceExhausted
		if over.Wait < math.MaxInt64 {
			wait = over.Wait
		}
	}
	switch {
	case !limited && ctx.Err() == nil:
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = Canceled
	}
	return code, wait
}
