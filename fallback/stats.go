package fallback

import "time"

// Stats are the counts of a [Fallback] so far. The fields are read one by one, and may be of
// slightly different moments.
type Stats struct {
	State State     // of the breaker; with partitions, Open or HalfOpen if any of them is
	Since time.Time // when State began

	OpenPartitions int // breakers that are not closed

	Primary, Lease, Denials, Local, OnFail uint64 // decisions, by Source

	Opens, Probes uint64 // how often a breaker opened, and a probe started

	Failures uint64 // calls of primary, and probes, that failed or were late

	// Calls of primary for which the caller's deadline left too little time, less than Timeout:
	// local decided. Cost that primary had counted when its answer came is no debt.
	ShortDeadlines uint64

	// Counts that primary had lost though no call of it failed, as the next answer showed, and to
	// which the next call has raised primary again. A refund of another instance may be counted here
	// by mistake.
	Losses uint64

	Reconciled uint64 // cost that local admitted and primary was charged with
	// Cost admitted by local and never charged: the ledger is full, or primary cannot be charged.
	Dropped uint64
	Callers int    // in the ledger
	Panics  uint64 // of primary and of callbacks
}
