package weirtest

import "github.com/weirgo/weir"

// decidingLaws are those of strategies that decide at once.
var decidingLaws = []law{
	{name: "Exact", check: exact},
	{name: "Cost", check: cost},
	{name: "TotalRequests", check: totalRequests},
	{name: "Span", check: span},
	{name: "Aligned", check: aligned, unfit: unless(func(s *suite) bool { return s.Aligned }, "periods are not declared to be aligned")},
	{name: "DenialTakesNothing", check: denialTakesNothing},
	{name: "Hammering", check: hammering},
	{name: "RetryInstant", check: retryInstant},
	{name: "FreshAgain", check: freshAgain},
	{name: "CostOverLimit", check: costOverLimit},
	{name: "LimitZero", check: limitZero, unfit: ifFixed},
	{name: "HugeLimit", check: hugeLimit, unfit: ifFixed},
	{name: "BadInput", check: badInput},
	{name: "Request", check: requestStays},
	{name: "Keys", check: keys},
	{name: "Durations", check: durations, unfit: ifFixed},
	{name: "LimitChange", check: limitChange, unfit: ifFixed},
	{name: "ClockBack", check: clockBack},
	{name: "Sweep", check: sweep, unfit: unless(func(s *suite) bool { return s.Sweep != nil }, "no Sweep is declared")},
	{name: "Context", check: deadContext},
	{name: "Decide", check: decide, unfit: offering[decider]("Decide")},
	{name: "Peek", check: peek, unfit: offering[weir.Peeker]("Peek")},
	{name: "Refund", check: refund, unfit: offering[weir.Refunder]("Refund")},
	{name: "Reset", check: reset, unfit: offering[weir.Resetter]("Reset")},
	{name: "Seed", check: seed, unfit: offering[weir.Seeder]("Seed")},
	{name: "Charge", check: charge, unfit: offering[weir.Charger]("Charge")},
}

// waitingLaws are those of strategies that wait.
var waitingLaws = []law{
	{name: "Pace", check: pace},
	{name: "Order", check: order},
	{name: "Queue", check: queue},
	{name: "RetryInstant", check: comeBack},
	{name: "GivingUp", check: givingUp},
	{name: "Keys", check: separateQueues},
	{name: "NeverPasses", check: neverPasses},
	{name: "BadInput", check: badInput},
	{name: "Request", check: requestStays},
	{name: "Context", check: deadContext},
	{name: "Peek", check: waitingPeek, unfit: offering[weir.Peeker]("Peek")},
	{name: "Refund", check: waitingRefund, unfit: offering[weir.Refunder]("Refund")},
	{name: "Reset", check: waitingReset, unfit: offering[weir.Resetter]("Reset")},
	{name: "Seed", check: waitingSeed, unfit: offering[weir.Seeder]("Seed")},
	{name: "Charge", check: waitingCharge, unfit: offering[weir.Charger]("Charge")},
}

var ifFixed = unless(func(s *suite) bool { return !s.Fixed }, "the strategy goes by a limit and a duration of its own")

func unless(holds func(*suite) bool, why string) func(*suite) string {
	return func(s *suite) string {
		if holds(s) {
			return ""
		}
		return why
	}
}
