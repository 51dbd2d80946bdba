package httplimit

import (
	"context"
	"errors"
	"time"
)

// forecast sets, for each policy that admitted the request, when more of its limit becomes
// available: the draft's t. ExpiresAt is when all of the limit is available; a client that waited
// for that would reach half its rate in a sliding window.
func (c *call) forecast(ctx context.Context) {
	if !c.forecasts {
		return
	}
	for i := range c.limits {
		if s := &c.states[i]; s.ask.Decided() && !s.renewsAtOnce {
			s.more = s.nextQuota(ctx)
		}
	}
}

// nextQuota returns when more of the limit than remains now becomes available, or the zero time if
// nothing was taken.
//
// For Strategies that cannot forecast it peeks with a cost of one more than remains: the denial's
// ExpiresAt is the answer. A Peek may be a round trip, so Strategies of other packages are peeked
// at only when nothing remains, which is when clients wait; otherwise their ExpiresAt is reported,
// which is never too early.
func (s *state) nextQuota(ctx context.Context) time.Time {
	if s.forecaster != nil {
		at, err := s.forecaster.Forecast(ctx, &s.ask.Request, &s.ask.Result)
		switch {
		case err == nil:
			return at
		// of a wrapper, that is: the wrapped Strategy has none
		case !errors.Is(err, errors.ErrUnsupported):
			return s.ask.Result.ExpiresAt
		}
	}
	left := s.ask.Remaining()
	if s.peeker == nil || left >= s.ask.Most() || left > 0 && s.ask.Source != "local" {
		return s.ask.Result.ExpiresAt
	}
	s.probe = s.ask.Request
	s.probe.Cost = left + 1
	res, err := s.peeker.Peek(ctx, &s.probe)
	if err != nil || res == nil || res.Allowed() || res.ExpiresAt.IsZero() {
		return s.ask.Result.ExpiresAt
	}
	return res.ExpiresAt
}

// resetAt returns the instant to report: for an admission when more is available, for a denial when
// the request passes; zero for never.
func (s *state) resetAt() time.Time {
	if !s.more.IsZero() && s.ask.Result.Allowed() {
		return s.more
	}
	return s.ask.Result.ExpiresAt
}
