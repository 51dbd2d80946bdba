package weir

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/forlimits"
)

// Strategy decides whether a request may pass. It is safe for concurrent use. Run neither keeps nor
// changes r. A denial is a Result with State [Deny]; an error means that the Strategy could not
// decide, and then nothing was counted and the Result is nil.
type Strategy interface {
	Run(ctx context.Context, r *Request) (*Result, error)
}

// Request asks for one admission.
type Request struct {
	// Key names the caller: 1 to 1024 bytes, any bytes.
	Key string

	// Limit is how much cost is admitted in one Duration. 0, as in a Request without Limit, denies
	// everything, and is no error. It counts as 2^63-1 at most, in FixedWindow, Calendar,
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

	// Lasting has a token bucket elsewhere count Key in one bucket, whatever the Duration is. A Limit
	// with a name sets it, so that its counts outlast a change of its numbers; others ignore it.
	Lasting bool
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
	// same request would pass, if nothing else is admitted until then. It is the zero time if a
	// request never can, as with a Cost over the limit, and of work in flight that counts until it is
	// released.
	ExpiresAt time.Time

	// Limit is what TotalRequests is held against where that is none of the Request: of [Tiers] and
	// limits.All the Limit, or burst, of the one that binds. Else it is 0.
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

// The optional interfaces of a Strategy, found by type assertion. They fail as Run does.
type (
	// Peeker returns the Result that Run would return, and counts and creates nothing.
	Peeker interface {
		Peek(ctx context.Context, r *Request) (*Result, error)
	}

	// Refunder takes back the cost that Run admitted for r with the Result taken. It does nothing for
	// a denial, a Cost over Limit, and once the period has ended. The count never falls below zero.
	Refunder interface {
		Refund(ctx context.Context, r *Request, taken *Result) error
	}

	// Admitter is Run for an admission that may have to be given back, and returns what gives a part
	// of its cost back: from that admission, and not from others. It gives nothing back once that
	// counts no more, or the count was reset. A Refunder knows only what a Result says.
	Admitter interface {
		Admit(ctx context.Context, r *Request) (*Result, Return, error)
	}

	// Return gives back cost of one admission, as often as there is some left.
	Return func(ctx context.Context, cost uint64) error

	// Resetter sets the count of r.Key in r.Duration to zero.
	Resetter interface {
		Reset(ctx context.Context, r *Request) error
	}

	// Seeder raises the count of r.Key in the current period to counted.TotalRequests, the count of
	// another store. It never lowers it, and does nothing after counted.ExpiresAt.
	Seeder interface {
		Seed(ctx context.Context, r *Request, counted *Result) error
	}

	// Forecaster returns the earliest instant at which more of r.Limit is available than is left after
	// admitted, the Result of r, if nothing else is admitted until then; the zero time if nothing was
	// taken. A strategy whose admissions all lapse at ExpiresAt returns that.
	Forecaster interface {
		Forecast(ctx context.Context, r *Request, admitted *Result) (time.Time, error)
	}

	// Charger adds r.Cost, which another store has admitted, whether it fits or not.
	Charger interface {
		Charge(ctx context.Context, r *Request) error
	}

	// Reconciler catches up with another store and decides on r, in one step: it resets the count, or
	// raises it as a Seeder does if it has lost it, charges the debts of b that it has not charged
	// before, and then does what Run does. The call can be repeated: debts are charged once, though r
	// itself may be counted again.
	Reconciler interface {
		Reconcile(ctx context.Context, r *Request, b *Backlog) (*Result, error)
	}

	// Holder is Run for work that is admitted until it ends. [Hold] calls it, and keeps the Place.
	Holder interface {
		// Acquire returns the Place of what it has admitted, or nil with a denial.
		Acquire(ctx context.Context, r *Request) (*Result, Place, error)
	}

	// Place is an admission that counts until it is released, or one Duration after it was last
	// renewed. Its methods are not called at the same time.
	Place interface {
		// Renew keeps the place for another Duration, and takes it again if that is over and there is
		// still room. It reports false if there is none.
		Renew(ctx context.Context) (held bool, err error)

		// Release gives the place back. It does nothing if that is over.
		Release(ctx context.Context) error
	}

	// Named has a plain name, such as "sliding window".
	Named interface {
		Algorithm() string
	}

	// Wrapper is a Strategy around another one. It has the name of that, its burst and its tiers, and
	// counts where that counts, unless it says otherwise. Of the interfaces above it has those that it
	// implements itself, as far as the other one does too.
	Wrapper interface {
		Unwrap() Strategy
	}
)

// As returns s as a T, or the first of what it wraps that is one; see [Wrapper].
func As[T any](s Strategy) (t T, ok bool) {
	for {
		if t, ok = s.(T); ok {
			return t, true
		}
		w, wraps := s.(Wrapper)
		if !wraps {
			return t, false
		}
		s = w.Unwrap()
	}
}

// NameOf returns the plain name of s, such as "sliding window": that of a [Named] Strategy, or of
// the one that s wraps, or what String returns. The name of any other is its type.
func NameOf(s Strategy) string {
	switch s := s.(type) {
	case Named:
		return s.Algorithm()
	case Wrapper:
		return NameOf(s.Unwrap())
	case fmt.Stringer:
		return s.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// What is known of a Strategy beside the optional interfaces, found by [As].
type (
	// sized is a token bucket: the burst is how many tokens are kept; 0 means the Limit.
	sized interface{ Burst() uint64 }

	// inLimiter counts in a Limiter.
	inLimiter interface{ Limiter() *Limiter }

	// lapser says when what it has admitted lapses, of a token bucket one hit after the other; see
	// package near.
	lapser interface {
		Lapse(r *Request, expires time.Time) (until time.Time, each time.Duration, ok bool)
	}

	// tiered has tiers, and ignores the Limit of a Request.
	tiered interface {
		RunTier(ctx context.Context, r *Request) (*Result, Tier, error)
	}

	// bounded ignores the Limit and the Duration of a Request, if it says so.
	bounded interface{ Bound() bool }

	// ofCalendar counts in windows that are about so long, whatever the Duration of a Request.
	ofCalendar interface{ Window() time.Duration }

	// fuller knows when nothing counts for r if nothing more is admitted: the present, later, or
	// noInstant if nobody knows.
	fuller interface {
		full(r *Request) (at int64, err error)
	}

	// periodic counts in periods that have a name, such as "month@Europe/Berlin".
	periodic interface{ Period() string }

	// prompt says that its calls end with the deadline of their context; see package fallback.
	prompt interface{ Prompt() bool }
)

type local = forlimits.Local[Request, Result]

// allAtOnce is part of the strategies whose admissions all lapse at ExpiresAt, and none before.
type allAtOnce struct{}

// Forecast implements [Forecaster]: it returns ExpiresAt. It does not fail.
func (allAtOnce) Forecast(_ context.Context, _ *Request, admitted *Result) (time.Time, error) {
	if admitted.TotalRequests == 0 {
		return time.Time{}, nil
	}
	return admitted.ExpiresAt, nil
}

// Backlog is what a [Reconciler] has missed of one caller while another store decided.
type Backlog struct {
	// Reset reports that the caller was reset: the count is first set to zero, as by [Resetter], once
	// for a Source.
	Reset bool

	// Counted is the last known count, to which the count is raised, as by [Seeder]; nil: it is not.
	// CountedAt is when it was known, or before. A Reconciler that has counted a Refund or a Reset
	// since then has not lost the count, and does not raise it.
	Counted   *Result
	CountedAt time.Time

	// Source names the store that decided: 1 to 64 bytes, different for each start of each process,
	// and after each Reset of the caller there.
	Source string

	// Total is the cost that Source has admitted for this caller so far, a running total that never
	// restarts, and falls by what is given back: less than one seen before charges nothing; Charged is
	// the part of it that is known to be charged or no longer counts. Reconcile charges Total less
	// Charged, or less the largest Total that it has seen of Source, whichever is less. It remembers
	// that Total for as long as the period.
	Charged, Total uint64
}
