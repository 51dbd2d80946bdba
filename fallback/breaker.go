package fallback

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// State is the state of the breaker.
type State int

// The states of the breaker.
const (
	Closed   State = iota // primary is asked
	Open                  // primary is not asked
	HalfOpen              // one caller asks primary, and the breaker closes or opens with what comes of it
)

// String returns the state in lower case.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// Change is a change of the breaker's state.
type Change struct {
	From, To State
	At       time.Time
	Cause    error // what primary failed with, if To is Open; nil if the probe told nothing
}

// The rate of failures is that of the last rateWindow, from rateCalls on.
const (
	rateWindow = 10 * time.Second
	rateCalls  = 20
)

// breaker decides who may ask primary. It calls nobody and waits for nothing.
type breaker struct {
	failures int
	rate     float64
	interval time.Duration

	start time.Time

	// gate is 0 while the breaker is closed, and else the instant from which a probe may pass, in ns since start. An
	// atomic, though it changes under mu alone, so that an open breaker costs one load.
	gate  atomic.Int64
	opens atomic.Uint64 // how often it opened; changes under mu

	// doubts counts the times at which primary may have been lost and found: each outage, and in between a failure an
	// interval. Whatever has been seen of primary before the last of them may be there no more.
	doubts atomic.Uint64

	mu    sync.Mutex
	state State // guarded by mu, as all below

	// term is the number of the state. A verdict on a call that entered in another term is void: a slow failure of before
	// an outage must not open the breaker that has closed since, nor a lost probe's late answer close it.
	term    uint64
	since   time.Time
	row     int    // failures in succession
	halves  [2]run // of rateWindow: the current one and the one before
	half    int64  // number of the current one
	doubted time.Time
	stuck   int // probes whose time is up and that have not returned
}

// run is a number of calls, and of those that failed.
type run struct{ calls, failed int }

// ticket is the right to ask primary once.
type ticket struct {
	term   uint64
	doubts uint64 // of the breaker, when it was given
	probe  bool
}

// noTerm is the term of a ticket that no verdict follows from.
const noTerm = math.MaxUint64

// nobody is a gate that only the end of the probe opens.
const nobody = math.MaxInt64

// at is now as a gate, never that of a closed breaker.
func (b *breaker) at(now time.Time) int64 { return max(1, int64(now.Sub(b.start))) }

// enter gives a ticket, or none.
func (b *breaker) enter(now time.Time) (t ticket, ok bool, c *Change) {
	if gate := b.gate.Load(); gate != 0 && b.at(now) < gate {
		return t, false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch gate := b.gate.Load(); {
	case gate == 0:
		return ticket{b.term, b.doubts.Load(), false}, true, nil
	case b.at(now) < gate:
		return t, false, nil
	}
	b.gate.Store(nobody)
	c = b.turn(HalfOpen, now, nil)
	return ticket{b.term, b.doubts.Load(), true}, true, c
}

// succeed is the verdict that primary answered.
func (b *breaker) succeed(t ticket, now time.Time) *Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.term != b.term {
		return nil
	}
	if t.probe {
		b.halves = [2]run{}
		b.gate.Store(0)
		return b.turn(Closed, now, nil)
	}
	b.row = 0
	b.count(now, 0)
	return nil
}

// fail is the verdict that primary could not. jitter is in [0, 1).
func (b *breaker) fail(t ticket, now time.Time, cause error, jitter float64) *Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.term != b.term {
		return nil
	}
	if b.doubted.IsZero() || now.Sub(b.doubted) >= b.interval {
		b.doubt(now)
	}
	b.row++
	if !t.probe && b.row < b.failures && !b.count(now, 1) {
		return nil
	}
	b.row = 0
	if !t.probe {
		b.opens.Add(1)
		b.doubt(now)
	}
	b.shut(now, jitter)
	return b.turn(Open, now, cause)
}

func (b *breaker) doubt(now time.Time) {
	b.doubted = now
	b.doubts.Add(1)
}

// forgo is the verdict that nothing was learnt: the next caller may probe at once.
func (b *breaker) forgo(t ticket, now time.Time) *Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.term != b.term || !t.probe {
		return nil
	}
	b.gate.Store(b.at(now))
	return b.turn(Open, now, nil)
}

// strand counts a probe that does not return in time (1), or returns at last (-1).
func (b *breaker) strand(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck += n
}

// patientFor is how many probes may be lost before the next one is put off.
const patientFor = 64

// shut sets the instant of the next probe. A primary that never returns costs a goroutine a probe, so that their number
// must slow them down: at one a second there are 3 300 after a day, not 86 400.
func (b *breaker) shut(now time.Time, jitter float64) {
	wait := float64(b.interval) * (1 + 0.1*jitter) * float64(1+b.stuck/patientFor)
	b.gate.Store(b.at(now.Add(time.Duration(wait))))
}

// count adds a call to the current half of the window, and reports whether too many of the last ones failed.
func (b *breaker) count(now time.Time, failed int) bool {
	half := b.at(now) / int64(rateWindow/2)
	switch half - b.half {
	case 0:
	case 1:
		b.halves = [2]run{1: b.halves[0]}
	default:
		b.halves = [2]run{}
	}
	b.half = half
	b.halves[0].calls++
	b.halves[0].failed += failed
	calls := b.halves[0].calls + b.halves[1].calls
	return calls >= rateCalls && b.rate < 1 && float64(b.halves[0].failed+b.halves[1].failed) >= b.rate*float64(calls)
}

func (b *breaker) turn(to State, now time.Time, cause error) *Change {
	c := &Change{From: b.state, To: to, At: now, Cause: cause}
	b.state, b.since = to, now
	b.term++
	return c
}

// next is the earliest instant at which primary may be asked again.
func (b *breaker) next(now time.Time) time.Time {
	switch gate := b.gate.Load(); {
	case gate == nobody:
		return now.Add(b.interval)
	case gate > b.at(now):
		return b.start.Add(time.Duration(gate))
	}
	return now
}
