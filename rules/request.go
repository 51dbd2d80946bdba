package rules

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Request asks for a decision, in the terms of Envoy's rate limit protocol.
type Request struct {
	Domain      string
	Descriptors []Descriptor

	// Hits is the cost of each descriptor that has none of its own; 0 means 1.
	Hits uint64
}

// Descriptor is what one limit of a request goes by. The rules are asked for each descriptor by
// itself.
type Descriptor struct {
	// Entries are matched in order. A descriptor without entries has no limit.
	Entries []Entry

	// Override replaces the limit of the rules. It needs no rule, but it needs the domain.
	Override *Override

	// Hits is the cost if HasHits is set. 0 then is a peek, which counts nothing and is over the
	// limit only if the count is.
	Hits    uint64
	HasHits bool

	// GiveBack returns Hits instead of taking them. The status is then OK.
	GiveBack bool
}

// Override is a limit that a request brings with it. It counts in fixed windows.
type Override struct {
	Requests   uint32
	Unit       Unit
	Multiplier uint32 // units in a period; 0 means 1
}

// Code is a verdict. The values are those of the protocol.
type Code int32

// The verdicts.
const (
	UnknownCode Code = iota
	OK
	OverLimit
)

// String returns the name in the protocol.
func (c Code) String() string {
	switch c {
	case OK:
		return "OK"
	case OverLimit:
		return "OVER_LIMIT"
	}
	return "UNKNOWN"
}

// Response is the decision on a Request.
type Response struct {
	Code     Code
	Statuses []Status // one for each descriptor, in order

	// Shadowed reports whether Code is OK only because of Config.Shadow.
	Shadowed bool

	// Err is what failed after the decision was made: a count could not be given back, or not be
	// raised over the limit. The verdict stands; the next ones on the same counters may be off by
	// the request's hits.
	Err error
}

// Allowed reports whether the request passes.
func (r *Response) Allowed() bool { return r.Code != OverLimit }

// Reason is why a Status has its code.
type Reason uint8

// The reasons. Only Within, Over and Shadowed have a limit.
const (
	NoDomain  Reason = iota // the rules do not know the domain
	NoRule                  // no rule limits the descriptor
	Unlimited               // the rule says so
	Replaced                // another rule of this request replaces the one that matched
	Within                  // the limit
	Over                    // the limit
	Shadowed                // over the limit, but the rule is in shadow mode
)

var reasons = [...]string{"unknown domain", "no rule", "unlimited", "replaced", "within", "over", "shadowed"}

// String returns the reason in one or two words.
func (r Reason) String() string { return reasons[r] }

// Status is the decision on one descriptor.
type Status struct {
	Code   Code
	Reason Reason
	Rule   *Rule  // that matched; nil if none did, and for an override
	Limit  *Limit // that was counted against; nil if none was

	// Remaining is how much of the limit is left, 0 if it is over or shadowed, and math.MaxUint32
	// if unlimited.
	Remaining uint64

	// Reset is, of a fixed window, how long it still runs. Of other algorithms it is how long it
	// takes until nothing counts any more or, if the descriptor is over, until the same request
	// would pass; the period if it never would. It is 0 without a limit.
	Reset time.Duration
}

// ResetSeconds is Reset in whole seconds, rounded up, as the protocol has it. It is at least 1 if
// there is a limit.
func (s *Status) ResetSeconds() int64 {
	if s.Limit == nil {
		return 0
	}
	return max(1, int64((s.Reset+time.Second-1)/time.Second))
}

// An error means that a request was not decided, and nothing was counted.
var (
	// ErrNoDomain: the request has no domain.
	ErrNoDomain = errors.New("rate limit domain must not be empty")

	// ErrNoDescriptors: the request has no descriptors.
	ErrNoDescriptors = errors.New("rate limit descriptor list must not be empty")

	// ErrOverride: an override has no unit that is known, or a period of more than 365 days.
	ErrOverride = errors.New("bad limit override")
)

// check reports what keeps the request from being decided.
func (r *Request) check() error {
	switch {
	case r.Domain == "":
		return ErrNoDomain
	case len(r.Descriptors) == 0:
		return ErrNoDescriptors
	}
	for i := range r.Descriptors {
		o := r.Descriptors[i].Override
		if o == nil {
			continue
		}
		l := o.limit()
		if !o.Unit.valid() || l.Period() > maxPeriod {
			return fmt.Errorf("%w: descriptor %d: %s", ErrOverride, i, l.String())
		}
	}
	return nil
}

func (o *Override) limit() Limit {
	return Limit{Requests: o.Requests, Unit: o.Unit, Multiplier: max(1, o.Multiplier)}
}

// hits returns the cost of a descriptor. 0 is a peek.
func (r *Request) hits(d *Descriptor) uint64 {
	if d.HasHits {
		return min(d.Hits, math.MaxInt64)
	}
	return min(max(1, r.Hits), math.MaxInt64)
}
