package fallback

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// The defaults of Config.
const (
	DefaultTimeout       = 50 * time.Millisecond
	DefaultFailures      = 5
	DefaultFailureRate   = 0.5
	DefaultProbeInterval = time.Second
	DefaultMaxCallers    = 1 << 17
	DefaultSkew          = 10 * time.Millisecond
)

// ErrConfig: a strategy is missing, or a field of Config is out of its range.
var ErrConfig = errors.New("fallback: bad config")

// OnFail says who decides when primary cannot.
type OnFail int

// What Config.OnFail may be.
const (
	FailLocal  OnFail = iota // local decides, and what it admits is carried back
	FailOpen                 // everything passes, but what asks for more than its limit
	FailClosed               // nothing passes
)

// Config says how primary is watched and what becomes of callers without it. The zero value of a field is its default.
type Config struct {
	// OnFail says who decides when primary cannot. Default FailLocal; only then is local needed.
	OnFail OnFail

	// Instances is N, how many processes hold the limit together: without primary, each has one Nth of it to give.
	// Default 1: each has all of it. Too small over-admits in an outage, too large under-admits.
	Instances int

	// InstancesFunc, if set, is asked for N at each decision that needs it, in place of Instances: for fleets that grow
	// and shrink. Below 1 counts as 1. It must be fast and safe for concurrent use. The bound of New holds for the smallest
	// N that any instance went by in the period.
	InstancesFunc func() int

	// Timeout bounds what one decision waits for primary. Default DefaultTimeout. Too small turns slow answers into
	// failures; too large holds callers when primary hangs. A caller whose own deadline is nearer than twice that gives
	// primary half of the time it has left, so that local can still decide in time; that such a short wait was in vain
	// does not count against primary.
	Timeout time.Duration

	// Failures in succession open the breaker. Default DefaultFailures.
	Failures int

	// FailureRate of the last 10 s opens it too, from 20 calls on. Default DefaultFailureRate; 1 or more leaves it to
	// Failures.
	FailureRate float64

	// ProbeInterval is how long an open breaker waits until one caller's request, whole and real, tries primary again; up
	// to a tenth longer, at random, so that a fleet does not come back in step. If primary denies that request, which takes
	// no writing, one more is sent that it must count, under a key of its own. Default DefaultProbeInterval. Too small
	// lets a caller in each interval wait for a dead primary; too large keeps everybody from one that is back.
	ProbeInterval time.Duration

	// IsDown reports whether an error of primary's speaks against primary as a whole. Default: every error does. When it
	// does not, the server is taken to be up: local decides, and the breaker stays closed. With redislimit:
	//
	//	IsDown: func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	//
	// It is not asked about weir.ErrID, ErrScale and ErrLimit, nor about the end of the caller's own context, which are
	// returned and say nothing about primary; nor about Timeout, which always speaks against it.
	IsDown func(error) bool

	// DenialCache is how many denials of primary's are kept and repeated, until the instant that they state, to the
	// requests they were given to: the same key, Duration, Limit and Cost. An attack then does not reach primary. About 150
	// bytes each, 10 of them from the start; when they are too many, the one that ends first goes. Default 0: none; at
	// most 1<<28. A refund or a Reset by another process is not noticed.
	DenialCache int

	// Lease is k, how much cost at most is taken from primary at once, to be given to callers without asking: primary
	// then sees one kth of the traffic. Default 0: none. It never over-admits. The price is what is left of the blocks when
	// the period ends, at most k a caller and instance, and less near the limit, where the blocks get smaller: others are
	// denied it; where primary is no weir.Refunder, so is at most one block more, that came too late to be given out. Only
	// for a primary that is a fixed window, aligned to the Unix epoch; on any other nothing is leased from the first answer
	// on that shows it.
	Lease int

	// Skew is how far primary's clock may be from this one: a lease and a cached denial end that much before the instant
	// that primary stated, and until it has passed again primary is asked for each request. What a clock further ahead
	// says of a window to come is not leased either. Default DefaultSkew; negative: the clocks are one. Too large leases
	// seldom: the Durations of leases should be many times as long.
	Skew time.Duration

	// MaxCallers bounds the ledger: how many callers are remembered in it, each with a Duration of its own; about 280
	// bytes each. Default DefaultMaxCallers. Too small forgets: what local admits for a caller without a place is not
	// carried back (Stats.Dropped).
	MaxCallers int

	// OnChange is called after each change of the breaker's state, and OnError with each error of primary's that the
	// caller does not get to see. They run outside every lock, in the goroutine that noticed, so perhaps several at once;
	// they should not take long. A panic in them is dropped (Stats.Panics).
	OnChange func(Change)
	OnError  func(error)

	// Now is the clock, which must be local's. Default time.Now. Waiting for primary goes by real time all the same.
	Now func() time.Time

	// Rand returns numbers in [0, 1), for the jitter of ProbeInterval, and is safe for concurrent use. Default rand.Float64.
	Rand func() float64
}

func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"Instances", int64(c.Instances)}, {"Timeout", int64(c.Timeout)}, {"Failures", int64(c.Failures)},
		{"ProbeInterval", int64(c.ProbeInterval)}, {"DenialCache", int64(c.DenialCache)}, {"Lease", int64(c.Lease)},
		{"MaxCallers", int64(c.MaxCallers)},
	} {
		if f.n < 0 {
			return c, fmt.Errorf("%w: %s is negative", ErrConfig, f.name)
		}
	}
	if c.DenialCache > maxDenials {
		return c, fmt.Errorf("%w: DenialCache is %d, more than %d", ErrConfig, c.DenialCache, maxDenials)
	}
	if c.FailureRate < 0 || math.IsNaN(c.FailureRate) {
		return c, fmt.Errorf("%w: FailureRate is %v", ErrConfig, c.FailureRate)
	}
	if c.OnFail < FailLocal || c.OnFail > FailClosed {
		return c, fmt.Errorf("%w: OnFail is %d", ErrConfig, c.OnFail)
	}
	orDefault(&c.Instances, 1)
	orDefault(&c.Timeout, DefaultTimeout)
	orDefault(&c.Failures, DefaultFailures)
	orDefault(&c.FailureRate, DefaultFailureRate)
	orDefault(&c.ProbeInterval, DefaultProbeInterval)
	orDefault(&c.MaxCallers, DefaultMaxCallers)
	orDefault(&c.Skew, DefaultSkew)
	c.Skew = max(0, c.Skew)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
