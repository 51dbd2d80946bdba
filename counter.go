package weir

import "github.com/weirgo/weir/internal/arith"

// Counter counts in a period of one Duration that begins with the caller's first hit. Make one with
// [Limiter.Counter].
type Counter struct{ locked[slot] }

// Counter returns the single counter as a Strategy: the first hit of a caller begins a period of
// one Duration, in which Limit are admitted; the first hit after it begins the next. A denied
// request begins none. In a span of one Duration that lies across two periods up to twice Limit is
// admitted, as by FixedWindow, but the periods of different callers do not all end at one instant.
//
// A caller has one bucket, from period to period. A decision takes the mutex of one shard for a few
// nanoseconds. What is given back stays in its period, which does not end sooner for it.
//
// It is the counter of the Go limiter over Redis (INCR and EXPIRE), in process; redislimit's
// Counter gives the same Results. It differs from that original in that the period begins with the
// first hit, not the second, and that a denial names the end of the period that is now.
func (l *Limiter) Counter() *Counter {
	return &Counter{newLocked(l, &anchored{}, &slotStore{l, counterKind})}
}

// anchored is the arithmetic of a Counter. A slot without a period starts at the first instant.
type anchored struct{}

// start returns when the period of a Counter began.
func (s *slot) start() int64 { return int64(s[deniedWord]) }

// running returns the start of the period that holds now, and what is counted in it. If there is
// none, that is a new one.
func (a *anchored) running(s *slot, p params, now int64) (start, total int64) {
	if now < arith.Add(s.start(), p.scale*msec) {
		return s.start(), count(s[stateWord])
	}
	return now, 0
}

func (a *anchored) prepare(p params) (params, error) {
	return p.clamp(maxCount), nil
}

func (a *anchored) advance(s *slot, p params, now int64) {
	s[usedWord] = uint64(now)
	if now >= arith.Add(s.start(), p.scale*msec) {
		s.set(noInstant, 0)
	}
}

func (a *anchored) decide(s *slot, p params, now int64) verdict {
	start, total := a.running(s, p, now)
	return p.verdict(total, arith.Add(start, p.scale*msec))
}

func (a *anchored) admit(s *slot, p params, now, cost int64, _ string) {
	start, total := a.running(s, p, now)
	s.set(start, min(arith.Add(total, cost), maxCount))
}

func (a *anchored) refund(s *slot, p params, _, expires int64, _ string) {
	if expires == arith.Add(s.start(), p.scale*msec) {
		s.set(s.start(), max(0, count(s[stateWord])-p.cost))
	}
}

// raise has a period that began elsewhere go on here, and end when it would have.
func (a *anchored) raise(s *slot, p params, now, expires, total int64, _ string) {
	start, have := a.running(s, p, now)
	if s.start() != start {
		start = min(start, arith.Sub(expires, p.scale*msec))
	}
	if total > have {
		s.set(start, min(total, maxCount))
	}
}
