package fallback

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// The defaults of Config.
const (
	DefaultTimeout       = 50 * time.Millisecond
	DefaultInterval      = time.Second
	DefaultMinCalls      = 5
	DefaultFailureRate   = 0.5
	DefaultProbeInterval = time.Second
	DefaultMaxCallers    = 1 << 17
)

// ErrConfig is the error of [New] for a missing strategy, or a field of Config out of its range.
var ErrConfig = errors.New("fallback: bad config")

// OnFail selects how to decide when primary cannot.
type OnFail int

// The values of Config.OnFail.
const (
	FailLocal  OnFail = iota // local decides, and primary is charged later
	FailOpen                 // every request passes, except one whose cost exceeds its limit
	FailClosed               // no request passes
)

// Config bounds a [Fallback]. The zero value of a field is its default.
type Config struct {
	// OnFail selects how to decide when primary cannot. Default FailLocal; only then is local needed.
	OnFail OnFail

	// Instances is N, the number of processes that hold the limit together: without primary, each
	// admits one Nth of it. Default 1. Too small over-admits in an outage, too large under-admits.
	Instances int

	// InstancesFunc, if set, is called for N, for fleets that grow and shrink, such as the Instances
	// of a redislimit.Heartbeat. Below 1 it does not know, and Instances is N. It must be fast and
	// safe for concurrent use. When N falls while local decides, a caller keeps its smaller share
	// until its period ends: the instances that left may have used theirs.
	InstancesFunc func() int

	// OwnLimits reports that primary and local have limits of their own and ignore the request's Limit
	// and Duration. The Tiers of weir and redislimit and a weir.Limit are recognized without it, also
	// inside of wrappers that say so; so are their Calendars, which ignore the Duration
	// alone.
	OwnLimits bool

	// AllowUnlike permits a primary and a local that New takes for a mistake, as far as About tells
	// what these are: a local elsewhere behind a primary in this process; two algorithms; numbers of
	// local that are not in a request, as limits and bursts, and that exceed its share of primary's;
	// Calendars whose windows differ.
	AllowUnlike bool

	// Timeout is how long a decision may wait for primary. Default DefaultTimeout. It should be at
	// least three round trips, since a new connection takes two before it carries a decision; with
	// near.Leases inside at least six. It does not follow the latency: where machines are short of
	// processor time, make it longer than the slowest answers (docs/machines.md has figures), or
	// healthy calls are decided locally. A caller whose deadline is nearer than twice Timeout waits
	// for half of the time it has left, so that local can still decide (Stats.ShortDeadlines). The
	// call goes on without it, and counts as late only after all of Timeout; an admission that arrives
	// even later settles the admissions of local that primary was not charged with.
	Timeout time.Duration

	// The breaker opens when, of the calls that ended in the last Interval, at least MinCalls and the
	// share FailureRate failed or were late, and the first of these failures is at least Stall ago.
	// Defaults: DefaultInterval, or twice Stall if that is longer; DefaultMinCalls;
	// DefaultFailureRate; and Timeout for Stall: a stall of less than twice Timeout does not open it,
	// however many callers are held. Negative Stall: none. The breaker also opens after MinCalls
	// failures in a row, each at least Stall after the one before, whatever the time between them.
	Interval    time.Duration
	MinCalls    int
	FailureRate float64
	Stall       time.Duration

	// ProbeInterval is how long an open breaker waits until a request starts a probe; up to a tenth
	// longer, at random for each breaker, so that a fleet does not probe in step. Default
	// DefaultProbeInterval. No caller waits for a probe.
	ProbeInterval time.Duration

	// ProbeTimeout bounds a probe, which may have to connect. Default: ten times Timeout, at least a
	// second.
	ProbeTimeout time.Duration

	// Partition, if set, names the part of primary that a key belongs to, such as the shard of a Redis
	// Cluster (see redislimit.Shard). Each part has a breaker of its own, so that callers of healthy
	// shards do not suffer from one that is down; there are at most 1024, and further parts share one.
	// It must be fast, must not block, and must be safe for concurrent use. Of the keys that extend a
	// key some must belong to the same part, as with a hash or a prefix: a probe uses such a key. The
	// key is the one that primary counts: under a weir.Limit it is weir.JoinKey of its name, or of
	// its numbers such as "100/1m", and the request's key.
	Partition func(key string) string

	// IsDown reports whether an error of primary counts against it. Default: every error does. If it
	// returns false the server is up: local decides and the breaker stays closed. With redislimit:
	//
	//	IsDown: func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	//
	// It is not called for weir.ErrID, ErrScale and ErrLimit, which callers get, nor for calls that
	// are late.
	IsDown func(error) bool

	// MaxCallers bounds the ledger: how many callers, each a key in a Duration, are remembered; about
	// 420 bytes each, up to 800 in an outage. Default DefaultMaxCallers. An admission of local for a
	// caller without a place is not charged to primary (Stats.Dropped). Every call takes a place, also
	// of Peek; callers who owe nothing make room for others.
	MaxCallers int

	// OnCall is called after each call of primary, and after each probe, with how long it took and its
	// error; a late one took Timeout, or ProbeTimeout for a probe. It must be fast, and safe for
	// concurrent use.
	OnCall func(took time.Duration, err error)

	// OnChange is called after each change of a breaker's state, OnError with each error of primary
	// that callers do not see, and with ErrLost. They run outside of every lock, possibly
	// concurrently, and should be fast. Panics are dropped (Stats.Panics). Without OnChange
	// slog.Default gets a line when a breaker opens or closes, and without OnError one for ErrLost: at
	// most one a second each.
	OnChange func(Change)
	OnError  func(error)

	// Now is the clock, the same as local's, and the one of OnCall. Default time.Now. Timeout and
	// ProbeTimeout are real time.
	Now func() time.Time
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	setDefault(&errs, "Instances", &c.Instances, 1)
	setDefault(&errs, "Timeout", &c.Timeout, DefaultTimeout)
	setDefault(&errs, "Interval", &c.Interval, max(DefaultInterval, 2*cmp.Or(c.Stall, c.Timeout)))
	setDefault(&errs, "MinCalls", &c.MinCalls, DefaultMinCalls)
	setDefault(&errs, "FailureRate", &c.FailureRate, DefaultFailureRate)
	setDefault(&errs, "ProbeInterval", &c.ProbeInterval, DefaultProbeInterval)
	setDefault(&errs, "ProbeTimeout", &c.ProbeTimeout, max(time.Second, 10*c.Timeout))
	setDefault(&errs, "MaxCallers", &c.MaxCallers, DefaultMaxCallers)
	if c.OnFail < FailLocal || c.OnFail > FailClosed {
		errs = append(errs, fmt.Errorf("%w: OnFail is %d", ErrConfig, c.OnFail))
	}
	c.Stall = cmp.Or(c.Stall, c.Timeout)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, errors.Join(errs...)
}

// setDefault sets a field that is 0 to value, and adds an error if it is negative or no number.
func setDefault[T int | float64 | time.Duration](errs *[]error, name string, field *T, value T) {
	if cmp.Compare(*field, 0) < 0 { // NaN is
		*errs = append(*errs, fmt.Errorf("%w: %s is %v", ErrConfig, name, *field))
	}
	*field = cmp.Or(*field, value)
}
