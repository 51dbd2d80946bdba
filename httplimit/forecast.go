package httplimit

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// forecast finds, for each policy that admitted the request, when more of its limit becomes
// available: the draft's t. ExpiresAt is when all of it is: a sliding window's client that waited
// for that would reach half its rate.
func (m *middleware) forecast(ctx context.Context, c *call) {
	if !m.forecasts {
		return
	}
	for i := range c.asked {
		if a := &c.asked[i]; a.answered {
			a.more = a.nextQuota(ctx)
		}
	}
}

// nextQuota returns when more of the limit than remains now becomes available, or the zero time if
// nothing was taken.
//
// Strategies that cannot forecast are peeked at with a cost of one more than remains: the denial
// says when that passes. A Peek may be a round trip, so those of other packages are peeked at only
// when nothing remains, which is when clients wait; before, ExpiresAt is reported, which is never
// too early.
func (a *asked) nextQuota(ctx context.Context) time.Time {
	if a.forecaster != nil {
		if at, err := a.forecaster.Forecast(ctx, &a.req, &a.res); err == nil {
			return at
		}
		return a.res.ExpiresAt
	}
	left := a.remaining()
	if _, ok := a.Strategy.(*weir.FixedWindow); ok || a.peeker == nil || left >= a.req.Limit || left > 0 && a.direct == nil {
		return a.res.ExpiresAt
	}
	a.probe = a.req
	a.probe.Cost = left + 1
	res, err := a.peeker.Peek(ctx, &a.probe)
	if err != nil || res == nil || res.Allowed() || res.ExpiresAt.IsZero() {
		return a.res.ExpiresAt
	}
	return res.ExpiresAt
}

// resetAt returns the instant to report: for an admission when more is available, for a denial when
// the request passes; zero for never.
func (a *asked) resetAt() time.Time {
	if a.res.Allowed() && !a.more.IsZero() {
		return a.more
	}
	return a.res.ExpiresAt
}
