package httplimit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirgo/weir"
)

// observe finds how much remains of each limit, and until when: if the request is admitted, until
// more is available, the draft's t. ExpiresAt is when all of the limit is: a client that waited for
// that would reach half its rate in a sliding window. It returns the last limit whose Strategy
// failed, or none.
func (c *call) observe(ctx context.Context, admitted bool) (failed int) {
	failed = none
	for i := range c.states {
		s := &c.states[i]
		if s.ask.Err != nil {
			failed = i
		}
		if admitted && !c.forecasts && (c.verdict == nil || !c.describes) {
			continue // nobody wants to know
		}
		s.undecided, s.remaining = !s.ask.Decided(), s.ask.Remaining()
		s.at = s.ask.Result.ExpiresAt
		if s.policy != nil {
			if admitted && c.forecasts && !s.undecided && !s.renewsAtOnce {
				s.at = s.nextQuota(ctx)
			}
			s.exempt, s.denied, s.reset = s.ask.Exempt, s.ask.Denies(), c.resetIn(s)
		}
		if s.shown.inFlight {
			s.reset = never
			if s.denied && !s.ask.Never() {
				s.reset = retryPlace
			}
		}
		if s.policy != nil && s.Keys != nil && !s.exempt { // the name may be that of an earlier one
			yield(c.states[:i], s)
		}
	}
	return failed
}

const (
	never      = -1
	retryPlace = time.Second // how long a client waits that has no place: one may be free at any time
)

// yield leaves out either other, or the limit of its name in states, of which there is at most one.
func yield(states []state, other *state) {
	for i := range states {
		if states[i].exempt || states[i].shown.name != other.shown.name {
			continue
		}
		if other.binds(&states[i]) {
			states[i].exempt = true
		} else {
			other.exempt = true
		}
		return
	}
}

// resetIn returns the time until s.at, or never: since the decision, if the Strategy says how long
// its Result holds, and else from now.
func (c *call) resetIn(s *state) time.Duration {
	left := s.ask.Left
	switch {
	case s.at.IsZero():
		return never
	case left <= 0:
		left = c.middleware.until(s.at)
	default:
		left += s.at.Sub(s.ask.Result.ExpiresAt)
	}
	return max(0, left)
}

// retryAfter returns the time to wait, with the jitter; 0 if waiting does not help or its length is
// unknown.
func (c *call) retryAfter() time.Duration {
	var wait time.Duration
	switch {
	case c.kind == Denied:
		wait = longest(c.states, 0)
	case c.kind == Listed && !c.until.IsZero():
		wait = max(time.Millisecond, c.middleware.until(c.until))
	case c.full != nil:
		wait = c.full.RetryAfter
	case c.kind == Busy:
		wait = retryPlace // a retry may pass at any time
	case c.kind == Failed && errors.Is(c.err, weir.ErrFull):
		wait = longest(c.states, retryPlace)
	}
	if wait > 0 {
		return spread(wait, c.jitter)
	}
	return 0
}

// spread adds the jitter to a time to wait.
func spread(wait, jitter time.Duration) time.Duration {
	return wait + min(jitter, math.MaxInt64-wait)
}

// longest returns the time, wait or longer, after which the same request passes every limit; 0 if
// one of them never lets it pass.
func longest(states []state, wait time.Duration) time.Duration {
	for i := range states {
		switch s := &states[i]; {
		case !s.denied:
			continue
		case s.reset < 0:
			return 0
		default:
			wait = max(wait, time.Millisecond, s.reset)
		}
	}
	return wait
}

// randomSeconds returns a random number of whole seconds, 0 to d, each as likely.
func randomSeconds(d time.Duration) time.Duration {
	if d < time.Second {
		return 0
	}
	return time.Duration(rand.Int64N(int64(d/time.Second)+1)) * time.Second
}
