package weir

import "time"

// PeriodCounter counts in a period of one Duration that begins with the caller's first hit. Make
// one with [Limiter.Counter].
type PeriodCounter struct{ slotStrategy }

// Counter returns the single counter as a Strategy: the first hit of a caller begins a period of
// one Duration, in which Limit are admitted; the first hit after it begins the next. A denied
// request begins none. In a span of one Duration that lies across two periods up to twice Limit is
// admitted, as by FixedWindow, but the periods of different callers do not all end at one instant.
//
// A caller has one bucket, from period to period. A decision on a key that has a bucket takes no
// lock, but for the hit that begins a period. What is given back stays in its period, which does
// not end sooner for it.
//
// It is the counter of the Go limiter over Redis (INCR and EXPIRE), in process; redislimit's
// Counter gives the same Results. It differs from that original in that the period begins with the
// first hit, not the second, and that a denial names the end of the period that is now.
func (l *Limiter) Counter() *PeriodCounter {
	return (&PeriodCounter{l.onSlots(counterKind)}).described()
}

// described sets what c is.
func (c *PeriodCounter) described() *PeriodCounter {
	c.describe(c, About{Name: "counter", Lapses: LapsesAtOnce})
	return c
}

// Limit returns the limit of n in d. It panics where [NewLimit] fails.
func (c *PeriodCounter) Limit(n uint64, d time.Duration) *Limit { return mustLimit(c, n, d) }

func (c *PeriodCounter) bind(m *Limit) (Counter, error) {
	of := *c
	err := of.bindTo(m)
	return of.described(), err
}
