package httplimit

import (
	"math"
	"math/rand/v2"
	"time"
)

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
