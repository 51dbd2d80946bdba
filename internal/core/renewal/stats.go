package renewal

import "sync/atomic"

// Stats are the counts of this process, over all Strategies, which package metrics exports.
type Stats struct {
	Held   int64  // places that are kept: neither released nor lost
	Lapsed uint64 // places that were lost
	Waits  uint64 // calls of weir.HoldWait that found no place at once, in this process or elsewhere
}

// counts are those of Stats. Each changes with a remote call or a wait, which cost far more.
var counts struct {
	held          atomic.Int64
	lapsed, waits atomic.Uint64
}

// Read returns the counts so far, which may be of slightly different moments.
func Read() Stats {
	return Stats{Held: counts.held.Load(), Lapsed: counts.lapsed.Load(), Waits: counts.waits.Load()}
}

// Waited counts a call of weir.HoldWait that waits.
func Waited() { counts.waits.Add(1) }
