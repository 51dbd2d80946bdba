package fallback

import (
	"sync/atomic"
	"time"
)

// Stats is what a Fallback has done since it was made. The counts are read one by one: they may be of slightly different
// moments.
type Stats struct {
	State State     // of the breaker
	Since time.Time // when it came into State

	Primary, Lease, Denials, Local, Policy uint64 // decisions, by Source

	Opens    uint64 // outages: how often the breaker opened
	Probes   uint64 // requests sent to primary while it was open
	Failures uint64 // calls of primary that spoke against it

	Carried uint64 // cost that local admitted and primary was charged with
	Dropped uint64 // cost that local admitted and that found no room in the ledger
	Cold    uint64 // answers of primary's that local had no room for
	Callers int    // in the ledger
	Panics  uint64 // of primary and of callbacks
}

type counters struct {
	decided                                 [FromPolicy + 1]atomic.Uint64 // by Source
	probes, failures, carried, cold, panics atomic.Uint64
}

// Stats returns what f has done. It looks through no account, but waits for each page of the ledger once.
func (f *Fallback) Stats() Stats {
	s := Stats{
		Primary:  f.stats.decided[FromPrimary].Load(),
		Lease:    f.stats.decided[FromLease].Load(),
		Denials:  f.stats.decided[FromDenials].Load(),
		Local:    f.stats.decided[FromLocal].Load(),
		Policy:   f.stats.decided[FromPolicy].Load(),
		Opens:    f.breaker.opens.Load(),
		Probes:   f.stats.probes.Load(),
		Failures: f.stats.failures.Load(),
		Carried:  f.stats.carried.Load(),
		Dropped:  f.ledger.dropped.Load(),
		Cold:     f.stats.cold.Load(),
		Callers:  f.ledger.size(),
		Panics:   f.stats.panics.Load(),
	}
	s.State, s.Since = f.breaker.current()
	return s
}

func (b *breaker) current() (State, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state, b.since
}
