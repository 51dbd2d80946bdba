// Package conformance is the suite behind weirtest.TestStrategy: the laws of weir.Strategy, the
// random histories on which they are checked, and the shrinking of those that break one.
package conformance

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
)

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

// Clock is a weirtest.Clock.
type Clock interface {
	Now() time.Time
	Advance(d time.Duration)
	Set(t time.Time)
}

// NewClock returns a clock that stands still at start or, in a synctest bubble, the clock of the
// bubble. One that stands still calls onRead, without a lock, before it is read.
type NewClock func(start time.Time, bubble bool, onRead func()) Clock

// Factory returns a strategy that has counted nothing and uses clock.
type Factory func(t testing.TB, clock Clock) weir.Strategy

// law is one promise. check panics with a *failure if it is broken. It uses no *testing.T, so that
// the laws can be tested themselves.
type law struct {
	name  string
	check func(*suite)
	// first: the other laws say nothing of a strategy that breaks it.
	first bool
	// inapplicable returns why the law does not apply to these strategies, or "".
	inapplicable func(*suite) string
}

// suite is the state of one law: the factory, the declared promises and a source of random numbers.
type suite struct {
	Laws
	t     testing.TB
	clock NewClock
	make  Factory
	rng   *rand.Rand
	// offers is a strategy whose type shows its optional interfaces. It is never run.
	offers weir.Strategy

	crowded atomic.Bool   // concurrent calls are made
	reads   atomic.Uint32 // of the clock meanwhile
}

// Test is weirtest.TestStrategy.
func Test(t *testing.T, newClock NewClock, factory Factory, laws Laws) {
	t.Helper()
	laws = laws.withDefaults()
	if why := laws.invalid(); why != "" {
		t.Fatal("weirtest: " + why)
	}
	broken := ""
	for _, l := range lawsOf(laws) {
		held := t.Run(l.name, func(t *testing.T) {
			if why, skip := laws.Skip[l.name]; skip {
				t.Skip(why)
			}
			if broken != "" {
				t.Skip("the law " + broken + " is broken")
			}
			inBubble(t, laws.Waits, func(t *testing.T) { run(t, l, newClock, factory, laws) })
		})
		if l.first && !held {
			broken = l.name
		}
	}
}

func inBubble(t *testing.T, bubble bool, f func(*testing.T)) {
	if bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

func run(t *testing.T, l law, newClock NewClock, factory Factory, laws Laws) {
	s := newSuite(t, l.name, newClock, factory, laws)
	if why := s.skips(l); why != "" {
		t.Skip(why)
	}
	if err := s.holds(l); err != nil {
		t.Error(err)
	}
}

// lawsOf returns the laws that apply to laws.Waits.
func lawsOf(laws Laws) []law {
	if laws.Waits {
		return queueLaws
	}
	return decidingLaws
}

func newSuite(t testing.TB, name string, newClock NewClock, factory Factory, laws Laws) *suite {
	// Each law has its own random numbers, so that adding one does not change the histories of the
	// others.
	seed := fnv.New64a()
	seed.Write([]byte(name))
	s := &suite{Laws: laws, t: t, clock: newClock, make: factory,
		rng: rand.New(rand.NewPCG(1, seed.Sum64()))}
	s.offers = factory(t, s.newClock())
	return s
}

func (s *suite) skips(l law) string {
	if l.inapplicable == nil {
		return ""
	}
	return l.inapplicable(s)
}

// holds checks a law and returns its failure, or nil.
func (s *suite) holds(l law) error {
	return catch(func() { l.check(s) })
}

func (s *suite) newClock() Clock { return s.clock(s.origin(), s.Waits, s.onRead) }

// onRead lets others run while concurrent calls read the clock, in some of which a strategy may be
// between its reading of a count and its writing. If it holds a sync.Mutex there, that is handed
// over as soon as another caller has waited for a millisecond, so that some reads take longer.
func (s *suite) onRead() {
	if !s.crowded.Load() {
		return
	}
	n := s.reads.Add(1)
	if n%512 == 1 {
		time.Sleep(2 * time.Millisecond) // see above
	}
	for range n % 3 {
		runtime.Gosched()
	}
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
