package conformance

import "github.com/weirgo/weir"

// decidingLaws apply to strategies that decide at once.
var decidingLaws = []law{
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
	{name: "Peek", check: peek, inapplicable: offering[weir.Peeker]("Peek")},
	{name: "Refund", check: refund, inapplicable: offering[weir.Refunder]("Refund")},
	{name: "Reset", check: reset, inapplicable: offering[weir.Resetter]("Reset")},
	{name: "Seed", check: seed, inapplicable: offering[weir.Seeder]("Seed")},
	{name: "Charge", check: charge, inapplicable: offering[weir.Charger]("Charge")},
	{name: "Hold", check: hold, inapplicable: offering[weir.Holder]("Acquire")},
}

// queueLaws apply to strategies that wait.
var queueLaws = []law{
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
	{name: "Peek", check: queuePeek, inapplicable: offering[weir.Peeker]("Peek")},
	{name: "Refund", check: queueRefund, inapplicable: offering[weir.Refunder]("Refund")},
	{name: "Reset", check: queueReset, inapplicable: offering[weir.Resetter]("Reset")},
	{name: "Seed", check: queueSeed, inapplicable: offering[weir.Seeder]("Seed")},
	{name: "Charge", check: queueCharge, inapplicable: offering[weir.Charger]("Charge")},
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
