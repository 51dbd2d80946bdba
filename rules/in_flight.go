package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
)

// inFlightUnit is the unit of a rule that limits how many requests are in flight at one time.
const inFlightUnit = "in_flight"

// defaultLease is the lease of a rule without one.
const defaultLease = time.Minute

// ErrInFlight means that a request matches a rule that limits requests in flight, and is decided by
// [Engine.Decide], which has no way to release its place, or gives hits back, which name no place.
// A peek takes no place and does not fail. Nothing was counted.
var ErrInFlight = errors.New("the rule limits requests in flight, and this decision does not " +
	"see their end; a Decider, Engine.Hold and weir proxy do")

// Hold is [Engine.DecideInto] for a request whose end the caller knows. It returns the places that
// the request takes in the rules for requests in flight, none if it is denied. The caller must
// release all of them when it ends.
func (e *Engine) Hold(ctx context.Context, req *Request, resp *Response) ([]*weir.Held, error) {
	c := e.calls.Get().(*call)
	defer e.calls.Put(c)
	if err := c.decide(ctx, e.state.Load(), req, resp, true); err != nil {
		return nil, err
	}
	return c.places(), nil
}

// checkInFlight returns ErrInFlight if a request would take a place, and holds is not set, or gives
// one back.
func (c *call) checkInFlight(statuses []Status, holds bool) error {
	for i := range c.asks {
		a := &c.asks[i]
		if a.strategy != nil && a.limit.Algorithm == InFlight && (a.refunds || !holds && !a.held.Look) {
			return fmt.Errorf("rules: %s: %w", statuses[i].Rule.Path, ErrInFlight)
		}
	}
	return nil
}

// places returns the places that the request has taken.
func (c *call) places() (held []*weir.Held) {
	for i := range c.limits {
		if place := c.limits[i].TakeHeld(); place != nil {
			held = append(held, place)
		}
	}
	return held
}

// inFlight reads the lease of a rule, and checks that it has no field of another unit. A field that
// is nil is not in the file.
func (d *decoder) inFlight(limit *Limit, multiplier, lease *field) {
	if limit.Algorithm != InFlight {
		if lease != nil && (limit.Unlimited || limit.Unit.valid()) {
			d.errorf(d.at(lease.key), "lease applies to the unit %s only", inFlightUnit)
		}
		return
	}
	limit.Lease = defaultLease
	if multiplier != nil {
		d.errorf(d.at(multiplier.key), "unit_multiplier does not apply to the unit %s", inFlightUnit)
	}
	text, ok := d.str(lease)
	of, err := time.ParseDuration(text)
	switch {
	case lease == nil || !ok:
	case err != nil:
		d.errorf(d.at(lease.value), "lease is %s; want a duration such as 60s or 5m", brief(lease.value))
	case !bounds.Duration(of):
		d.errorf(d.at(lease.value), "lease is %s; want whole milliseconds, from 1ms to 365 days",
			brief(lease.value))
	default:
		limit.Lease = of
	}
}
