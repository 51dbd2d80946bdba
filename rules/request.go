package rules

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
)

// Request is a request for a decision, in the terms of Envoy's rate limit protocol.
type Request struct {
	Domain      string
	Descriptors []Descriptor

	// Hits is the cost of each descriptor without its own cost; 0 means 1.
	Hits uint64
}

// Descriptor is one list of entries to match. Each descriptor of a request is matched separately.
type Descriptor struct {
	// Entries are matched in order. A descriptor without entries has no limit.
	Entries []Entry

	// Override replaces the limit of the rules. It works without a matching rule, but the domain
	// must exist.
	Override *Override

	// Hits is the cost if HasHits is set. A cost of 0 is a peek: it counts nothing and is over the
	// limit only if the count is.
	Hits    uint64
	HasHits bool

	// GiveBack refunds Hits instead of counting them: in a TokenBucket at most its capacity. The
	// status is then OK.
	GiveBack bool
}

// Override is a limit that is part of a request. It counts in fixed windows.
type Override struct {
	Requests   uint32
	Unit       Unit
	Multiplier uint32 // units in a period; 0 means 1
}

// Response is the decision on a Request.
type Response struct {
	Denied   bool
	Statuses []Status // one for each descriptor, in order

	// Shadowed reports whether the request is not denied only because of Config.Shadow.
	Shadowed bool

	// Lost is an error after the decision: a refund or raising a count failed. The verdict is valid;
	// later verdicts on the same counters may be off by the request's hits.
	Lost error
}

// Allowed reports whether the request passes.
func (r *Response) Allowed() bool { return !r.Denied }

// Code returns the protocol's name of the verdict: OK or OVER_LIMIT.
func (r *Response) Code() string { return code(r.Denied) }

// String describes the decision: the overall verdict and one line for each descriptor.
func (r *Response) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Code())
	for i := range r.Statuses {
		fmt.Fprintf(&b, "  %d: %s\n", i, r.Statuses[i].String())
	}
	return b.String()
}

func code(over bool) string {
	if over {
		return "OVER_LIMIT"
	}
	return "OK"
}

// Reason is what was decided on a descriptor, and why.
type Reason uint8

// The reasons. Only Within, Over and Shadowed come with a Limit.
const (
	NoDomain  Reason = iota // the rules do not know the domain
	NoRule                  // no rule limits the descriptor
	Unlimited               // the rule is unlimited
	Replaced                // another rule of this request replaces the one that matched
	Within                  // within the limit
	Over                    // over the limit
	Shadowed                // over the limit, but the rule is in shadow mode
)

var reasons = [...]string{"unknown domain", "no rule", "unlimited", "replaced", "within", "over",
	"shadowed"}

// String returns the reason in one or two words.
func (r Reason) String() string { return reasons[r] }

// Status is the decision on one descriptor.
type Status struct {
	Reason Reason
	Rule   *Rule  // the rule that matched; nil if there is none, and for an override
	Limit  *Limit // the limit that counted; nil if there is none

	// Remaining is the remaining number of hits: 0 if over the limit or shadowed, and
	// math.MaxUint32 if unlimited.
	Remaining uint64

	// Reset is the remaining time of a fixed window. For other algorithms it is the time until the
	// count is 0 or, if the descriptor is over its limit, until the same request would be admitted;
	// it is the period if that never happens. It is 0 without a limit, and for requests in flight of
	// which nobody knows when they end.
	Reset time.Duration
}

// Code returns the protocol's name of the decision: OVER_LIMIT if the descriptor is over its limit
// and the rule is not in shadow mode, and otherwise OK.
func (s *Status) Code() string { return code(s.Reason == Over) }

// ResetSeconds returns Reset in whole seconds, rounded up, as the protocol wants it. It is at least
// 1 if there is a limit.
func (s *Status) ResetSeconds() int64 {
	if s.Limit == nil {
		return 0
	}
	return max(1, int64((s.Reset+time.Second-1)/time.Second))
}

// String describes the decision on one descriptor: the rule, the limit and the remaining hits.
func (s *Status) String() string {
	switch s.Reason {
	case NoDomain, NoRule:
		return fmt.Sprintf("%s: no limit, %v", s.Code(), s.Reason)
	case Unlimited, Replaced:
		return fmt.Sprintf("%s: %v, rule %s", s.Code(), s.Reason, s.Rule.Path)
	}
	by := "limit override"
	if s.Rule != nil {
		by = "rule " + s.Rule.Path
	}
	left := fmt.Sprintf("%s: %v limit, %s, %s, %d left",
		s.Code(), s.Reason, by, s.Limit.String(), s.Remaining)
	if s.Reset == 0 { // nobody knows when work in flight ends
		return left
	}
	return fmt.Sprintf("%s, reset in %ds", left, s.ResetSeconds())
}

// ErrRequest means that a request is invalid: it has no domain or no descriptors, or an override
// with an unknown unit or of more than 365 days. Nothing was counted.
var ErrRequest = errors.New("rules: bad request")

// requestError is an ErrRequest with a text of its own, which is that of Envoy's service.
type requestError string

func (e requestError) Error() string { return string(e) }
func (e requestError) Unwrap() error { return ErrRequest }

// check returns an error if the request is invalid.
func (r *Request) check() error {
	switch {
	case r.Domain == "":
		return requestError("rate limit domain must not be empty")
	case len(r.Descriptors) == 0:
		return requestError("rate limit descriptor list must not be empty")
	}
	for i := range r.Descriptors {
		o := r.Descriptors[i].Override
		if o == nil {
			continue
		}
		l := o.limit()
		if !o.Unit.valid() || l.Period() > bounds.MaxDuration {
			return fmt.Errorf("%w: bad limit override: descriptor %d: %s", ErrRequest, i, l.String())
		}
	}
	return nil
}

func (o *Override) limit() Limit {
	return Limit{Requests: o.Requests, Unit: o.Unit, Multiplier: max(1, o.Multiplier)}
}

// hits returns the cost of a descriptor; 0 is a peek.
func (r *Request) hits(d *Descriptor) uint64 {
	if d.HasHits {
		return min(d.Hits, math.MaxInt64)
	}
	return min(max(1, r.Hits), math.MaxInt64)
}
