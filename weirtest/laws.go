package weirtest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
)

// Laws declares what a strategy promises, and so what [TestStrategy] holds it to. The zero value is the strictest: an
// exact rolling window, which waits for nobody and admits no more than the limit in any span of one Duration.
type Laws struct {
	// Limits and Durations are those the suite asks with; the first of each is used most. The defaults are 10, 1, 3 and
	// 100, and 1 s, 10 ms and 1 h; Durations are at most 30 days. A strategy whose state expires by another clock than the suite's (a server's) wants
	// Durations that do not run out during a test.
	Limits    []uint64
	Durations []time.Duration

	// Fixed says that the strategy goes by a limit and a duration of its own, whatever the request asks for. They must
	// be the first of Limits and Durations.
	Fixed bool

	// Burst returns the most cost that a key without a past is admitted at one instant; nil means the limit. A cost
	// above it can never pass.
	Burst func(limit uint64) uint64

	// Span returns the most cost that one key is admitted in any span of one Duration, its start included and its end
	// not; nil means the limit. A fixed window promises twice the limit.
	Span func(limit uint64) uint64

	// Aligned says that periods are cut from the Unix epoch: every ExpiresAt of an admission is a whole number of
	// Durations from it.
	Aligned bool

	// Proportional says that what was used keeps its share of the limit when the limit changes, as in a token bucket
	// (half the bucket stays half the bucket); otherwise it keeps its number.
	Proportional bool

	// Inexact says that callers who ask at the same time may be admitted more than the limit, because the strategy reads
	// before it writes. It is then not asked concurrently.
	Inexact bool

	// Waits says that Run waits until the request may pass, and denies only when Queue requests wait already. Such a
	// strategy is tested in testing/synctest bubbles, under laws of its own. Its factory must not count on the clock
	// standing still.
	Waits bool
	Queue int

	// Granule is the coarsest step in which the strategy reads or tells the time: all instants of the suite are whole
	// numbers of it since the Unix epoch. The default is a nanosecond.
	Granule time.Duration

	// Sweep, if set, removes what is over from the strategy that the factory made last. It must be safe to call while
	// the strategy is in use. The suite calls it where it must make no difference.
	Sweep func()

	// Histories is how many random histories each law tries, 100 by default and 20 with -short. Every run of the suite
	// tries the same ones. A history is about ten calls, and a law plays it up to six times.
	Histories int

	// Skip names laws that the strategy is not held to, with the reason, which the test log shows.
	Skip map[string]string
}

// law is one promise. check returns nil, or a *breach that says how the promise was broken. It plays histories on
// strategies made by the suite and touches no *testing.T, so that the laws can be tested themselves.
type law struct {
	name  string
	check func(*suite)
	// unfit returns why the law does not apply to these strategies, or "".
	unfit func(*suite) string
}

// suite is what a law has to work with: a factory, the declared promises and a source of chance.
type suite struct {
	Laws
	t    testing.TB
	make func(t testing.TB, clock *Clock) weir.Strategy
	rng  *rand.Rand
	// offers is a strategy to ask for its optional interfaces; it is never run.
	offers weir.Strategy
}

// TestStrategy holds a strategy to the laws of [weir.Strategy] and to what it declares in laws, each in a subtest of its
// own. A law that is broken is reported with the shortest history that shows it.
//
// newStrategy returns a strategy that has counted nothing and goes by clock; it is called some thousand times, and
// what it registers with its t's Cleanup runs as soon as that strategy is done with. Strategies are used one after the
// other, though each may be asked from several goroutines at once.
//
// The laws, by the names of their subtests:
//
//   - Exact: exactly the limit is admitted, also when callers ask at once and Sweep runs.
//   - Cost, CostOverLimit, LimitZero, HugeLimit: a request passes if its cost fits into what is left; if it could never
//     fit it is denied with the zero ExpiresAt; numbers do not wrap around.
//   - TotalRequests: it is what was admitted.
//   - Span, Aligned: no span of one Duration admits more than declared, and periods start where declared.
//   - DenialTakesNothing, Hammering: a denial changes nothing for anybody, however often it is asked for.
//   - RetryInstant: who was denied is denied at every instant before its ExpiresAt, and admitted at it.
//   - FreshAgain: from an admission's ExpiresAt on the key is as new, and before it is not.
//   - ClockBack, Sweep: neither a clock that goes back nor a sweep gives anything away.
//   - Keys, Durations, LimitChange: keys are counted apart, and Durations; a changed limit keeps what was used.
//   - BadInput, Request, Context: errors are those of package weir, come without a Result and count nothing; Requests are
//     neither changed nor kept.
//   - Peek, Refund, Reset, Seed, Charge: the optional interfaces, where the strategy offers them; and Decide, which is
//     Run with its Result by value.
//
// If the strategy waits, they are:
//
//   - Pace, Order: callers pass Duration/Limit apart, in the order in which they came, and no later than that takes.
//   - Queue, RetryInstant: a caller is denied, and at once, only when Queue others wait, and finds a place when told.
//   - GivingUp: a caller whose context is done leaves at once, and those behind it move up.
//   - Keys, NeverPasses, BadInput, Request, Context, Peek, Refund, Reset, Seed, Charge: as above.
func TestStrategy(t *testing.T, newStrategy func(t testing.TB, clock *Clock) weir.Strategy, laws Laws) {
	t.Helper()
	laws = laws.withDefaults()
	if why := laws.unsound(); why != "" {
		t.Fatal("weirtest: " + why)
	}
	for _, l := range lawsOf(laws) {
		t.Run(l.name, func(t *testing.T) {
			if why, skip := laws.Skip[l.name]; skip {
				t.Skip(why)
			}
			inBubble(t, laws.Waits, func(t *testing.T) { run(t, l, newStrategy, laws) })
		})
	}
}

func inBubble(t *testing.T, bubble bool, f func(*testing.T)) {
	if bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

func run(t *testing.T, l law, newStrategy func(testing.TB, *Clock) weir.Strategy, laws Laws) {
	s := newSuite(t, l.name, newStrategy, laws)
	if why := s.skips(l); why != "" {
		t.Skip(why)
	}
	if err := s.holds(l); err != nil {
		t.Error(err)
	}
}

// lawsOf returns the laws for strategies that decide at once, or those for strategies that wait.
func lawsOf(laws Laws) []law {
	if laws.Waits {
		return waitingLaws
	}
	return decidingLaws
}

func newSuite(t testing.TB, name string, factory func(testing.TB, *Clock) weir.Strategy, laws Laws) *suite {
	// Each law has its own stream of chance: adding one does not change what the others try.
	seed := fnv.New64a()
	seed.Write([]byte(name))
	s := &suite{Laws: laws, t: t, make: factory, rng: rand.New(rand.NewPCG(1, seed.Sum64()))}
	s.offers = factory(t, s.newClock())
	return s
}

func (s *suite) skips(l law) string {
	if l.unfit == nil {
		return ""
	}
	return l.unfit(s)
}

// holds returns nil if the law does, or how it was broken.
func (s *suite) holds(l law) error {
	return catch(func() { l.check(s) })
}

func (s *suite) newClock() *Clock {
	if s.Waits {
		return bubbleClock()
	}
	return NewClock(s.origin())
}

func (l Laws) withDefaults() Laws {
	if len(l.Limits) == 0 {
		l.Limits = []uint64{10, 1, 3, 100}
	}
	if len(l.Durations) == 0 {
		l.Durations = []time.Duration{time.Second, 10 * time.Millisecond, time.Hour}
	}
	if l.Fixed {
		l.Limits, l.Durations = l.Limits[:1], l.Durations[:1]
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

// unsound returns what is wrong with the declaration itself, or "".
func (l Laws) unsound() string {
	for _, limit := range l.Limits {
		if limit == 0 || l.Burst(limit) == 0 {
			return "Laws.Limits: nothing passes at limit 0, which the suite tries anyway"
		}
	}
	for _, d := range l.Durations {
		if d < time.Millisecond || d > 30*day || d%time.Millisecond != 0 || d%l.Granule != 0 {
			return fmt.Sprintf("Laws.Durations: %v is not a whole number of milliseconds and of granules, up to 30 days", d)
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
