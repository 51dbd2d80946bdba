// Package conformance is the suite behind weirtest.TestStrategy: the laws of weir.Strategy, the
// random histories on which they are checked, and the shrinking of those that break one.
package conformance

import (
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
)

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
	dice  dice
	// offers is a strategy that shows what it can do. It is never run.
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
	s := &suite{Laws: laws, t: t, clock: newClock, make: factory}
	s.dice = dice{rand.New(rand.NewPCG(1, seed.Sum64())), &s.Laws}
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

// try calls f with a new strategy.
func (s *suite) try(f func(*trial)) {
	scope := &scope{TB: s.t}
	defer scope.end()
	clock := s.newClock()
	f(&trial{Strategy: s.make(scope, clock), suite: s, clock: clock, origin: clock.Now()})
}

// The laws of counting at one instant.

// request returns a request for key at limit.
func (s *suite) request(limit uint64) weir.Request {
	return weir.Request{Key: key, Limit: limit, Duration: s.Durations[0]}
}

// trace plays h on a new strategy.
func (s *suite) trace(h history) trace {
	t := trace{history: h}
	s.try(func(tr *trial) {
		t.verdicts = tr.play(h)
		t.events = tr.events
	})
	return t
}

// against calls f with a new strategy. A failure shows t as its baseline.
func (s *suite) against(t trace, f func(*trial)) {
	s.try(func(tr *trial) {
		tr.baseline = t.events
		f(tr)
	})
}

// compare plays random histories, and calls check for each step of them on another strategy, at the
// same instant, with the Result that the step had.
func (s *suite) compare(v variety, check func(tr *trial, h history, i int, want weir.Result)) {
	s.search(v, func(h history) {
		full := s.trace(h)
		s.against(full, func(tr *trial) {
			for i, step := range h {
				tr.clock.Advance(step.after)
				check(tr, h, i, full.verdicts[i])
			}
		})
	})
}

// search checks the law on random histories. It panics with the failure of the shortest history it
// finds.
func (s *suite) search(v variety, law func(history)) {
	s.searchIn(func() history { return s.random(v) }, law)
}

func (s *suite) searchIn(next func() history, law func(history)) {
	for range s.Histories {
		h := next()
		if err := catch(func() { law(h) }); err != nil {
			panic(shrinker{&s.Laws, law}.shrink(h, err.(*failure)))
		}
	}
}

// replay plays the steps of full that stay, at their instants, and requires the same Results.
func (s *suite) replay(full trace, why string, stays func(i int) bool) {
	s.against(full, func(tr *trial) {
		for i, step := range full.history {
			tr.clock.Advance(step.after)
			if stays(i) {
				tr.expect(step.r, full.verdicts[i], why)
			}
		}
	})
}

// random returns a random history.
func (s *suite) random(v variety) history {
	h, eager := s.dice.history(v)
	if eager {
		return s.eager(h)
	}
	return h
}

// eager returns h with the pauses of a caller that retries without delay: at once after an
// admission, and at ExpiresAt after a denial.
func (s *suite) eager(h history) history {
	s.try(func(tr *trial) {
		for i := range h {
			if i > 0 {
				h[i].after = 0
			}
			if last := len(tr.events) - 1; i > 0 && !tr.events[last].res.Allowed() {
				h[i].after = s.grain(tr.events[last].res.ExpiresAt.Sub(tr.clock.Now()))
			}
			tr.clock.Advance(h[i].after)
			tr.run(h[i].r)
		}
	})
	return h
}
