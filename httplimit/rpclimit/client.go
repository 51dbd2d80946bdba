package rpclimit

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/weirgo/weir/httplimit"
)

// NotSent returns the code of a client's call that [httplimit.Transport.Admit] refused with err,
// and how long it would have had to wait: 0 if it can never pass, or if the Strategy could not
// decide, which is Unavailable.
func NotSent(err error) (code Code, wait time.Duration) {
	code = Unavailable
	var over *httplimit.LimitError
	if errors.As(err, &over) {
		code = ResourceExhausted
		if over.Wait < math.MaxInt64 {
			wait = over.Wait
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = Canceled
	}
	return code, wait
}
