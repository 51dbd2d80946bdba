package fallback

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// State is the state of a breaker.
type State int

// The states of a breaker.
const (
	Closed   State = iota // primary decides
	Open                  // primary is not called
	HalfOpen              // only a probe calls primary
)

// String returns the state in lower case.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// Change is a change of a breaker's state.
type Change struct {
	Partition string // "" without partitions
	From, To  State
	At        time.Time
	Cause     error // the last failure, if To is Open
}

// breaker decides whether a server may be called, by the share of calls that failed. A breaker
// calls no other code and does not block: the clock is an argument. Of Config it reads when to open
// and when to probe.
type breaker struct {
	cfg       Config
	partition string
	start     time.Time
	interval  time.Duration // ProbeInterval, and up to a tenth

	// gate is 0 while the breaker is closed, and otherwise the instant of the next probe, in ns
	// since start. An open breaker costs one atomic load.
	gate atomic.Int64

	// epoch counts the times that the server may have lost its counts: each opening, and once in a
	// ProbeInterval a failure. Counts that primary confirmed in an earlier epoch are sent to it
	// again. Changes under mu.
	epoch atomic.Uint64
	opens atomic.Uint64

	Probes atomic.Int64 // that have not returned

	mu     sync.Mutex
	state  State       // guarded by mu, as all below
	since  time.Time   // when state began
	slots  [slots]slot // the last Interval
	run    run         // the failures since the last success
	raised time.Time   // when epoch last changed
}

// run counts failures in a row, whatever the time between them, but at least Stall: failures of one
// stall count once.
type run struct {
	failed      int
	first, last time.Duration // since start
}

// add counts a failure at an instant.
func (r *run) add(at, stall time.Duration) {
	if r.failed == 0 {
		r.first = at
	}
	if r.failed == 0 || at-r.last >= stall {
		r.failed, r.last = r.failed+1, at
	}
}

// slots is the number of parts of an Interval, each judged as a whole.
const slots = 10

// slot counts the calls that ended in one part of an Interval.
type slot struct {
	number        int64 // of the part, since start
	calls, failed int
	first         time.Duration // the first failure, since start; the largest Duration for none
}

// probing is the gate while a probe runs.
const probing = math.MaxInt64

// newBreaker returns a closed breaker.
func newBreaker(cfg Config, partition string, now time.Time) *breaker {
	p := int64(cfg.ProbeInterval)
	interval := time.Duration(arith.Add(p, rand.Int64N(p/10+1)))
	return &breaker{cfg: cfg, partition: partition, start: now, since: now, interval: interval}
}

// State returns the state, and when it began.
func (b *breaker) State() (State, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.since
}

// at returns now as a gate, never the gate of a closed breaker.
func (b *breaker) at(now time.Time) int64 { return max(1, int64(now.Sub(b.start))) }

// Closed reports whether the server may be called.
func (b *breaker) Closed() bool { return b.gate.Load() == 0 }

// ProbeDue makes an open breaker whose pause is over half-open, for the caller to start a probe.
// Otherwise it returns nil.
func (b *breaker) ProbeDue(now time.Time) *Change {
	gate := b.gate.Load()
	if gate == 0 || b.at(now) < gate || !b.gate.CompareAndSwap(gate, probing) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turn(HalfOpen, probing, now, nil)
}

// Record counts a call that ended now; failure is nil if the server answered in time. Calls that
// end when the breaker is no longer closed do not count.
func (b *breaker) Record(now time.Time, failure error) *Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != Closed {
		return nil
	}
	number := b.at(now) / max(1, int64(b.cfg.Interval/slots))
	s := &b.slots[number%slots]
	if s.number != number || s.calls == 0 {
		*s = slot{number: number, first: math.MaxInt64}
	}
	s.calls++
	if failure == nil {
		b.run = run{}
		return nil
	}
	at := now.Sub(b.start)
	s.failed++
	s.first = min(s.first, at)
	b.run.add(at, b.cfg.Stall)
	calls, failed, first := 0, 0, s.first
	for _, s := range b.slots {
		if s.number > number-slots && s.calls > 0 {
			calls, failed, first = calls+s.calls, failed+s.failed, min(first, s.first)
		}
	}
	tripped := b.trips(calls, failed, at-first) || b.trips(b.run.failed, b.run.failed, at-b.run.first)
	if tripped || now.Sub(b.raised) >= b.cfg.ProbeInterval {
		b.raised = now
		b.epoch.Add(1)
	}
	if !tripped {
		return nil
	}
	b.opens.Add(1)
	return b.turn(Open, b.at(now.Add(b.pause())), now, failure)
}

// trips reports whether the breaker opens if of so many calls so many failed, over the last part of
// its time.
func (b *breaker) trips(calls, failed int, over time.Duration) bool {
	return calls >= b.cfg.MinCalls && float64(failed) >= b.cfg.FailureRate*float64(calls) &&
		over >= b.cfg.Stall
}

// Finish ends a probe that was started at started: failure is nil if the breaker closes.
func (b *breaker) Finish(started, now time.Time, failure error) *Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if failure == nil {
		return b.turn(Closed, 0, now, nil)
	}
	return b.turn(Open, b.at(started.Add(b.pause())), now, failure)
}

// pause returns the time until the next probe. A server that does not answer costs a goroutine
// for each probe, so probes that do not return make the next ones rarer.
func (b *breaker) pause() time.Duration {
	return time.Duration(arith.Mul(uint64(1+b.Probes.Load()/8), int64(b.interval)))
}

func (b *breaker) turn(to State, gate int64, now time.Time, cause error) *Change {
	c := &Change{Partition: b.partition, From: b.state, To: to, At: now, Cause: cause}
	b.state, b.since, b.slots, b.run = to, now, [slots]slot{}, run{}
	b.gate.Store(gate)
	return c
}

// Next returns the earliest instant at which the server may be called again.
func (b *breaker) Next(now time.Time) time.Time {
	gate := b.gate.Load()
	if gate == probing {
		return now.Add(b.cfg.ProbeInterval)
	}
	return now.Add(max(0, time.Duration(gate)-now.Sub(b.start)))
}
