package overload

import (
	"fmt"
	"time"
)

// FullError is the error of [Guard.Enter] for a request that is refused.
type FullError struct {
	Class  Class
	Reason Reason

	// InFlight of at most Most are in use: of all requests for ClassFull, and else of the
	// caller for ShareUsed.
	InFlight, Most int

	// RetryAfter is when to try again: one second, and up to 30 more at random in proportion to the
	// refused of the requests that ended lately.
	RetryAfter time.Duration
}

// Error implements error.
func (e *FullError) Error() string {
	if e.Reason == ShareUsed {
		return fmt.Sprintf("overload: the caller holds %d of at most %d", e.InFlight, e.Most)
	}
	return fmt.Sprintf("overload: full: %d of %d for %s", e.InFlight, e.Most, e.Class)
}
