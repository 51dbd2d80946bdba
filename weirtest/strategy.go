package weirtest

import (
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest/internal/conformance"
)

// Laws declares what a strategy promises, which [TestStrategy] checks. The zero value is the
// strictest: an exact rolling window, which never waits and admits no more than the limit in any
// span of one Duration.
type Laws struct {
	// Limits and Durations are those of the suite's requests; the first of each is used most. The
	// defaults are 10, 1, 3 and 100, and 1 s, 10 ms and 1 h; Durations are at most 30 days. A strategy
	// whose state expires by another clock than the suite's, such as a server's, needs Durations
	// longer than the test takes.
	Limits    []uint64
	Durations []time.Duration

	// Fixed declares that the strategy ignores the request's Limit and Duration and has its own, which
	// must be the first of Limits and Durations.
	Fixed bool

	// FixedDuration declares that the strategy ignores the request's Duration and has its own, which
	// must be the first of Durations. Fixed includes it.
	FixedDuration bool

	// Burst returns the most cost that a new key is admitted at one instant; nil means the limit. A
	// cost above it can never be admitted.
	Burst func(limit uint64) uint64

	// Span returns the most cost that one key is admitted in any span of one Duration, its start
	// included and its end not; nil means the limit. A fixed window promises twice the limit.
	Span func(limit uint64) uint64

	// Aligned declares that periods begin at whole Durations from the Unix epoch, as then every
	// ExpiresAt of an admission does.
	Aligned bool

	// Proportional declares that what was used keeps its share of the limit when the limit changes, as
	// in a token bucket that keeps only the instant at which it is full. Otherwise it keeps its
	// number, as in weir's.
	Proportional bool

	// Inexact declares that concurrent callers may be admitted more than the limit, because the
	// strategy reads before it writes. The suite then makes no concurrent calls.
	Inexact bool

	// Waits declares that Run waits until the request is admitted, and denies only when Queue requests
	// wait already. Such a strategy is tested in testing/synctest bubbles, by laws of its own. Its
	// factory must not rely on the clock standing still.
	Waits bool
	Queue int

	// Granule is the resolution of the strategy's time: all instants of the suite are multiples of it
	// since the Unix epoch. The default is a nanosecond.
	Granule time.Duration

	// Sweep, if set, removes expired states from the strategy that the factory made last. It must be
	// safe for concurrent use with the strategy. The suite calls it where it must make no difference.
	Sweep func()

	// Histories is the number of random histories of each law: 100 by default, and 20 with -short.
	// They are the same in every run. A history is about ten calls, and a law makes them up to six
	// times.
	Histories int

	// Skip names laws that are not checked, with the reason, which the test log shows.
	Skip map[string]string
}

// TestStrategy checks that a strategy keeps the laws of [weir.Strategy] and what it declares in
// laws, each law in a subtest. It reports a broken law with the shortest history that shows it.
// Laws{} declares an exact rolling window; a fixed window is
//
//	weirtest.Laws{Span: func(limit uint64) uint64 { return 2 * limit }, Aligned: true}
//
// newStrategy returns a strategy that has counted nothing and reads clock. It is called some
// thousand times; functions registered with its t's Cleanup run as soon as that strategy is no
// longer used. Strategies are used one after the other, each by one or several goroutines.
//
// The laws, by the names of their subtests; if one of the first three is broken, the others are
// skipped:
//
//   - About: a [weir.Counter] has an About of its own.
//   - Run: a valid request is decided, and not changed.
//   - Clock: a Result is by the clock that newStrategy is given.
//   - Exact: exactly the limit is admitted, to concurrent callers too, while Sweep runs.
//   - Cost, CostOverLimit, LimitZero, HugeLimit: a request is admitted if its cost fits in what is
//     left; if it can never fit it is denied with the zero ExpiresAt; numbers do not wrap around.
//   - TotalRequests: it is the cost admitted.
//   - Span, Aligned: no span of one Duration admits more than declared, and periods start where
//     declared.
//   - DenialTakesNothing, Hammering: a denial changes nothing for any caller, however often it is
//     repeated.
//   - RetryInstant: a denied request is denied at every instant before its ExpiresAt, and admitted
//     at it.
//   - FreshAgain: a key is as new from the ExpiresAt of its last admission on, and not before.
//   - ClockBack, Sweep: neither a clock that steps back nor a sweep admits more.
//   - Keys, Durations, LimitChange: keys and Durations are counted separately; a changed limit
//     keeps what was used.
//   - BadInput, Request, Context: errors are those of package weir, come without a Result and count
//     nothing; Requests are neither changed nor kept.
//   - Peek, Refund, Receipt, Reset, Seed, Charge, Hold: the verbs of a [weir.Counter] beside
//     OpTake, where the strategy can do them. Refund is OpReturn without a Receipt, and Receipt
//     with one; Seed is OpCatchUp, and Hold is OpHold, OpRenew and OpRelease.
//
// The laws of a strategy that waits:
//
//   - Pace, Order: callers are admitted Duration/Limit apart, in order of arrival, and none later
//     than that takes.
//   - Queue, RetryInstant: a caller is denied, at once, only when Queue others wait, and finds a
//     place at ExpiresAt.
//   - GivingUp: a caller whose context is done leaves at once, and those behind it move up.
//   - About, Run, Keys, NeverPasses, BadInput, Request, Context, Peek, Refund, Reset, Seed, Charge:
//     as above.
func TestStrategy(
	t *testing.T, newStrategy func(t testing.TB, clock *Clock) weir.Strategy, laws Laws,
) {
	t.Helper()
	newClock := func(start time.Time, bubble bool, onRead func()) conformance.Clock {
		if bubble {
			return bubbleClock()
		}
		c := NewClock(start)
		c.onRead = onRead
		return c
	}
	factory := func(t testing.TB, clock conformance.Clock) weir.Strategy {
		return newStrategy(t, clock.(*Clock))
	}
	conformance.Test(t, newClock, factory, conformance.Laws(laws))
}
