package weir

import "errors"

// An error from this package means "could not decide": nothing was counted, and the caller's
// policy, fail open or fail closed, takes over. A denial is never an error. Those of bad input are
// wrapped with the operands; compare with [errors.Is].
var (
	// ErrFull: MaxBuckets are in use and none is over. Callers who hold a bucket are unaffected; a
	// new one is refused until any bucket is over. Also: what logs, tiers and queues hold has
	// reached its bound (see SlidingLog), which refuses known callers of these strategies too.
	ErrFull = errors.New("weir: table is full")

	// ErrClosed: the limiter was closed.
	ErrClosed = errors.New("weir: limiter is closed")

	// ErrID: the id, or a request's key, is empty or longer than 1 KiB.
	ErrID = errors.New("weir: bad id")

	// ErrScale: the scale, or a request's Duration, is not a whole number of milliseconds from 1 ms
	// to 365 days.
	ErrScale = errors.New("weir: bad scale")

	// ErrLimit: the limit is negative, or a burst takes longer to refill than time can be counted.
	ErrLimit = errors.New("weir: bad limit")
)
