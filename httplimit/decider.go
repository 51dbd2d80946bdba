package httplimit

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/weirgo/weir/limits"
)

// Decider finds the limits of a request by itself, and decides by them: a rules.Decider does. The
// deny list, the policies and the bounds on requests in flight come before it. A Decider must be
// safe for concurrent use.
type Decider interface {
	// Decide decides on r and reports by v, which it must not keep.
	Decide(r *http.Request, v *Consultation)
}

// Consultation is the decision of a [Decider] on one request, and says what it may ask meanwhile.
// The zero values of the fields that it sets admit the request.
type Consultation struct {
	// Cost is the result of Config.CostFunc; 0 counts as 1.
	Cost uint64

	// State is memory that the Decider left here, for some earlier request, to use again.
	State any

	// Denied is set if a limit denies the request. Exempt is set if no limit applies to it, Shadow if
	// it is to pass in any case, and to be told nothing.
	Denied, Exempt, Shadow bool

	// Err is set to why the request could not be decided; its counts were given back.
	Err error

	// Invalid is set to why the request cannot be read. Such a request is refused with 400, or 414 if
	// its path is too long.
	Invalid error

	// Attempts are set to the ones that have decided. They are given back if the request does not
	// count after all, and their places are released when it ends.
	Attempts limits.Attempts

	c *call
	r *http.Request
}

// Report shows a limit in the fields and in the Decision, by its Policy, Strategy, Limit and
// Duration in d, whose Kind is Denied if the request is denied for it. a has the
// decision, and stays unchanged until the request has ended. reset is the time until more remains
// or, if denied, until the request would pass, negative for never; of a limit that holds, of which
// nobody knows that, it is ignored, as d's Duration is.
func (v *Consultation) Report(d Decision, a *limits.Attempt, reset time.Duration) {
	v.c.states = append(v.c.states, state{ask: a, denied: d.Kind == Denied, reset: reset,
		shown: shown{name: d.Policy, strategy: d.Strategy, limit: d.Limit, duration: d.Duration,
			inFlight: a.Holds()}})
}

// Tolerates reports whether a request may pass although a limit failed with err: the argument of
// [limits.Attempts.Take].
func (v *Consultation) Tolerates(err error) bool { return v.c.guard.bypasses(err) }

// ClientIP returns the IP that finds the client's address.
func (v *Consultation) ClientIP() IP { return v.c.guard.cfg.ClientIP }

// SharedKey reports whether the client uses too many keys beside key, which lives for a period: see
// MaxKeysPerClient. If it does, its further keys are to share one counter in each limit, under the
// client that is returned, whose bytes are valid until the next call.
func (v *Consultation) SharedKey(key []byte, period time.Duration) (client []byte, shared bool) {
	c := v.c
	if c.guard.keys == nil {
		return nil, false
	}
	c.guard.keys.Lives(2 * period)
	shared = c.exceeds(v.r, key)
	return c.client, shared
}

// Warn logs, at most once a second, that a request is limited less than the rules say.
func (v *Consultation) Warn(msg string, err error) {
	v.c.guard.log(v.r.Context(), &v.c.guard.throttles.decider, slog.LevelWarn, msg, v.c.caller(),
		slog.String("error", escape(err.Error())))
}
