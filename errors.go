package weir

import (
	"errors"

	"github.com/weirgo/weir/internal/core/room"
)

// An error means "could not decide": nothing was counted, and the caller fails open or fails
// closed. Errors of bad input wrap these with the operands; compare with [errors.Is].
var (
	// ErrFull: MaxBuckets are in use, and no expired one was found in the part of the table that a
	// call looks at. Callers who hold a bucket are unaffected, in CheckRate, FixedWindow and Calendar
	// until its window ends; others are refused until a bucket expires. Also: the logs, tiers and
	// queues together have reached their bound in bytes (see SlidingLog), which refuses callers of
	// these strategies who hold a bucket too.
	ErrFull = room.ErrFull

	// ErrClosed: the limiter was closed.
	ErrClosed = errors.New("weir: limiter is closed")

	// ErrID: the id, or a request's key, is empty or longer than 1 KiB.
	ErrID = errors.New("weir: bad id")

	// ErrScale: the scale, or a Duration, is not a whole number of milliseconds from 1 ms to 365
	// days.
	ErrScale = errors.New("weir: bad scale")

	// ErrLimit: the limit is negative, or a burst takes longer to refill than time can be counted.
	ErrLimit = errors.New("weir: bad limit")
)
