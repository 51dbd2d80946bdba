package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/engine"
)

const (
	maxID    = bounds.MaxKey // bytes
	maxCount = algorithm.MaxCount
	maxScale = bounds.MaxScale // ms: a larger scale stands for a series of windows

	msec       = int64(time.Millisecond)
	maxInstant = algorithm.End
	noInstant  = algorithm.Never
	present    = engine.Present
)

type (
	params  = engine.Params
	verdict = engine.Verdict
)

// Strategy decides whether a request may pass, and is safe for concurrent use. Run neither keeps
// nor changes r. A denial is a Result with State [Deny]; an error means that the Strategy could not
// decide, and then nothing was counted and the Result is nil.
type Strategy interface {
	Run(ctx context.Context, r *Request) (*Result, error)
}

// Request asks for one admission.
type Request struct {
	// Key names the caller: 1 to 1024 bytes, any bytes.
	Key string

	// Limit is how much cost is admitted in one Duration. 0, as in a Request without Limit, denies
	// everything, and is no error. Limit counts as 2^63-1 at most, in FixedWindow, Calendar,
	// SlidingWindow and Counter as 2^48-2, in InFlight as 2^40-2, and so does a Cost up to Limit.
	Limit uint64

	// Duration is the period the limit is for: a whole number of milliseconds, 1 ms to 365 days. One
	// key counts separately in each Duration. A Calendar and Tiers ignore it.
	Duration time.Duration

	// Cost is the number of hits this request counts for; 0 means 1. A cost that does not fit takes
	// nothing. One over the limit, or a token bucket's burst, is denied with the zero ExpiresAt.
	Cost uint64

	// Meta is kept with the hit by strategies that keep a log; others ignore it.
	Meta string

	// Lasting has a token bucket elsewhere count Key in one bucket, whatever the Duration is; other
	// strategies ignore it. A Limit with a name sets Lasting, so that its counts outlast a change of
	// its numbers.
	Lasting bool
}

// Decide returns the Result of r in a period that ends at end, and in which cost of counted was
// admitted: r is admitted if its Cost fits in what is left of its Limit. Decide is for stores,
// which count the TotalRequests of the Result from then on.
func (r *Request) Decide(counted uint64, end time.Time) Result {
	limit, cost := min(r.Limit, math.MaxInt64), max(1, r.Cost)
	switch {
	case cost > limit:
		return Result{TotalRequests: counted} // it can never pass
	case counted > limit-cost:
		return Result{TotalRequests: counted, ExpiresAt: end}
	}
	return Result{State: Allow, TotalRequests: counted + cost, ExpiresAt: end}
}

// The errors of a bad Request, which [Limiter.CheckRate] has too.
var (
	// ErrID: the id, or a request's key, is empty or longer than 1 KiB.
	ErrID = errors.New("weir: bad id")

	// ErrScale: the scale, or a Duration, is not a whole number of milliseconds from 1 ms to 365
	// days.
	ErrScale = errors.New("weir: bad scale")
)

// inputError is an error about bad input, in the words of the call: CheckRate has an ID and a
// scale, other calls have a key and a duration.
type inputError struct {
	text string
	is   error
}

// Error implements error.
func (e *inputError) Error() string { return e.text }

// Unwrap returns ErrID or ErrScale.
func (e *inputError) Unwrap() error { return e.is }

// checkDuration fails for a bad duration.
func checkDuration(d time.Duration) error {
	switch {
	case d < time.Millisecond || d > maxScale*time.Millisecond:
		return &inputError{fmt.Sprintf("weir: bad duration: %v, want 1ms to 8760h", d), ErrScale}
	case d%time.Millisecond != 0:
		return &inputError{
			fmt.Sprintf("weir: bad duration: %v is not a whole number of milliseconds", d), ErrScale}
	}
	return nil
}

// State is the verdict of a Strategy: Deny or Allow.
type State int64

// The values of a State.
const (
	Deny  State = 0
	Allow State = 1
)

// String returns "Deny" or "Allow".
func (s State) String() string {
	if s == Allow {
		return "Allow"
	}
	return "Deny"
}

// Result is the decision on one Request.
type Result struct {
	State State

	// TotalRequests is the cost admitted in the current period, with this request if it was admitted.
	TotalRequests uint64

	// ExpiresAt is, for an admitted request, the end of the period: if nothing more is asked, nothing
	// admitted so far counts from then on. For a denied one it is the earliest instant at which the
	// same request would pass, if nothing else is admitted until then. ExpiresAt is the zero time if a
	// request never can, as with a Cost over the limit, and of work in flight that counts until
	// released.
	ExpiresAt time.Time

	// Limit is the number that TotalRequests is held against where the Request has none: of [Tiers]
	// and limits.All the Limit, or burst, of the one that binds; else 0.
	Limit uint64
}

// Allowed reports whether the request was admitted.
func (r Result) Allowed() bool { return r.State == Allow }

// Remaining returns how much cost is left of limit: limit less TotalRequests, and never below 0.
// limit is the request's Limit, or the burst of a token bucket. A Limit of r itself replaces it.
func (r Result) Remaining(limit uint64) uint64 {
	if r.Limit != 0 {
		limit = r.Limit
	}
	return limit - min(limit, r.TotalRequests)
}

// RetryAfter returns how long after now the same request is worth repeating: 0 if it was admitted
// or its time has come, and the largest Duration if ExpiresAt is the zero time.
func (r Result) RetryAfter(now time.Time) time.Duration {
	switch {
	case r.Allowed():
		return 0
	case r.ExpiresAt.IsZero():
		return math.MaxInt64
	}
	return max(0, r.ExpiresAt.Sub(now))
}

// Tier is one of several limits that hold at once: at most Limit in Duration.
type Tier struct {
	Limit    uint64
	Duration time.Duration // a whole number of milliseconds, 1 ms to 365 days
}

// Backlog is all that a [Counter] has missed of one caller while another store decided.
type Backlog struct {
	// Reset reports that the caller was reset: the count is first set to zero, as by [OpReset], once
	// for a Source.
	Reset bool

	// Counted is the last known count, to which a lower count is raised, if Counted has not expired;
	// nil: the count stays. CountedAt is when Counted was known, or before. A Counter that remembers
	// an [OpReturn] or [OpReset] since then has not lost the count, and does not raise it.
	Counted   *Result
	CountedAt time.Time

	// Source names the store that decided: 1 to 64 bytes, different for each start of each process,
	// and after each reset of the caller there. A Counter in this process needs none.
	Source string

	// Total is the cost that Source has admitted for this caller so far, a running total that never
	// restarts, and falls when cost is given back: less than one seen before charges nothing; Charged
	// is the part of Total that is known to be charged or no longer counts. The Counter charges Total
	// less Charged, or less the largest Total that it has seen of Source, whichever is less, and
	// remembers that Total for as long as the period.
	Charged, Total uint64
}

// Hit is an admitted request in a log.
type Hit struct {
	At   time.Time
	Cost uint64
	Meta string
}

// counts identifies where a Strategy counts: a request of one key counts twice in two strategies
// with equal ones. The Limit and the Duration of requests are part of that unless bound is set.
type counts struct {
	of        any // a Limiter, or the counts of a Strategy elsewhere
	series    int64
	scale     int64
	bound     bool
	algorithm string
	plan      string // of tiers; of a Limit elsewhere, the label of its keys
}

// equal reports whether a == b: false where that panics, on types that cannot be compared.
func equal(a, b any) (ok bool) {
	defer func() { _ = recover() }()
	return a == b
}
