package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

// decidingLaws apply to strategies that decide at once.
var decidingLaws = []law{
	{name: "About", check: describesItself, first: true},
	{name: "Run", check: runs, first: true},
	{name: "Clock", check: readsClock, first: true},
	{name: "Exact", check: exact},
	{name: "Cost", check: cost},
	{name: "TotalRequests", check: totalRequests},
	{name: "Span", check: span},
	{name: "Aligned", check: aligned, inapplicable: ifUnaligned},
	{name: "DenialTakesNothing", check: denialTakesNothing},
	{name: "Hammering", check: hammering},
	{name: "RetryInstant", check: retryInstant},
	{name: "FreshAgain", check: freshAgain},
	{name: "CostOverLimit", check: costOverLimit},
	{name: "LimitZero", check: limitZero, inapplicable: ifFixed},
	{name: "HugeLimit", check: hugeLimit, inapplicable: ifFixed},
	{name: "BadInput", check: badInput},
	{name: "Request", check: requestStays},
	{name: "Keys", check: keys},
	{name: "Durations", check: durations, inapplicable: ifFixedDuration},
	{name: "LimitChange", check: limitChange, inapplicable: ifFixed},
	{name: "ClockBack", check: clockBack},
	{name: "Sweep", check: sweep, inapplicable: ifUnswept},
	{name: "Context", check: deadContext},
	{name: "Peek", check: peek, inapplicable: offering(weir.OpPeek)},
	{name: "Refund", check: refund, inapplicable: offering(weir.OpReturn)},
	{name: "Receipt", check: receipt, inapplicable: offering(weir.OpReturn)},
	{name: "Reset", check: reset, inapplicable: offering(weir.OpReset)},
	{name: "Seed", check: seed, inapplicable: offering(weir.OpCatchUp)},
	{name: "Charge", check: charge, inapplicable: offering(weir.OpCharge)},
	{name: "Hold", check: hold, inapplicable: offering(weir.OpHold)},
}

// queueLaws apply to strategies that wait.
var queueLaws = []law{
	{name: "About", check: describesItself, first: true},
	{name: "Run", check: runs, first: true},
	{name: "Pace", check: pace},
	{name: "Order", check: order},
	{name: "Queue", check: queue},
	{name: "RetryInstant", check: queueRetryInstant},
	{name: "GivingUp", check: givingUp},
	{name: "Keys", check: separateQueues},
	{name: "NeverPasses", check: neverPasses},
	{name: "BadInput", check: badInput},
	{name: "Request", check: requestStays},
	{name: "Context", check: deadContext},
	{name: "Peek", check: queuePeek, inapplicable: offering(weir.OpPeek)},
	{name: "Refund", check: queueRefund, inapplicable: offering(weir.OpReturn)},
	{name: "Reset", check: queueReset, inapplicable: offering(weir.OpReset)},
	{name: "Seed", check: queueSeed, inapplicable: offering(weir.OpCatchUp)},
	{name: "Charge", check: queueCharge, inapplicable: offering(weir.OpCharge)},
}

var (
	ifFixed = unless(func(s *suite) bool {
		return !s.Fixed
	}, "the strategy has its own limit and duration")
	ifFixedDuration = unless(func(s *suite) bool {
		return !s.FixedDuration
	}, "the strategy has its own duration")
	ifUnaligned = unless(func(s *suite) bool {
		return s.Aligned
	}, "periods are not declared to be aligned")
	ifUnswept = unless(func(s *suite) bool { return s.Sweep != nil }, "no Sweep is declared")
)

func unless(holds func(*suite) bool, why string) func(*suite) string {
	return func(s *suite) string {
		if holds(s) {
			return ""
		}
		return why
	}
}

// Laws is weirtest.Laws, where the fields are documented.
type Laws struct {
	Limits        []uint64
	Durations     []time.Duration
	Fixed         bool
	FixedDuration bool
	Burst         func(limit uint64) uint64
	Span          func(limit uint64) uint64
	Aligned       bool
	Proportional  bool
	Inexact       bool
	Waits         bool
	Queue         int
	Granule       time.Duration
	Sweep         func()
	Histories     int
	Skip          map[string]string
}

func (l Laws) withDefaults() Laws {
	if len(l.Limits) == 0 {
		l.Limits = []uint64{10, 1, 3, 100}
	}
	if len(l.Durations) == 0 {
		l.Durations = []time.Duration{time.Second, 10 * time.Millisecond, time.Hour}
	}
	if l.Fixed {
		l.Limits, l.FixedDuration = l.Limits[:1], true
	}
	if l.FixedDuration {
		l.Durations = l.Durations[:1]
	}
	if l.Burst == nil {
		l.Burst = theLimit
	}
	if l.Span == nil {
		l.Span = theLimit
	}
	if l.Granule == 0 {
		l.Granule = time.Nanosecond
	}
	if l.Histories == 0 {
		l.Histories = 100
		if testing.Short() {
			l.Histories = 20
		}
	}
	return l
}

// invalid returns what is wrong with the declaration, or "".
func (l Laws) invalid() string {
	for _, limit := range l.Limits {
		if limit == 0 || l.Burst(limit) == 0 {
			return "Laws.Limits: nothing passes at limit 0, which the suite tries anyway"
		}
	}
	for _, d := range l.Durations {
		if d < time.Millisecond || d > 30*day || d%time.Millisecond != 0 || d%l.Granule != 0 {
			return fmt.Sprintf(
				"Laws.Durations: %v is not a whole number of milliseconds and of granules, up to 30 days", d)
		}
	}
	for name := range l.Skip {
		if !slices.ContainsFunc(lawsOf(l), func(law law) bool { return law.name == name }) {
			return "Laws.Skip: there is no law " + name
		}
	}
	return ""
}

func theLimit(limit uint64) uint64 { return min(limit, math.MaxInt64) }

// grain rounds d down to a multiple of Granule.
func (l Laws) grain(d time.Duration) time.Duration { return max(0, d.Truncate(l.Granule)) }

// origin returns the instant at which histories start: the last one before 2000-01-01 at which
// windows of all Durations begin, as far as there is one.
func (l Laws) origin() time.Time {
	latest := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	edge := int64(1)
	for _, d := range l.Durations {
		ms := max(d.Milliseconds(), 1)
		if factor := ms / arith.GCD(edge, ms); edge <= latest/factor {
			edge *= factor
		}
	}
	return time.UnixMilli(latest / edge * edge).UTC()
}
