package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// The laws of strategies that wait. Each is checked in a testing/synctest bubble, where waiting
// takes no time.

// arrival is a caller. Its times count from the start of the trial.
type arrival struct {
	at      time.Duration
	r       weir.Request
	givesUp time.Duration // 0: never
}

// outcome is the end of a call.
type outcome struct {
	res  *weir.Result
	err  error
	done time.Duration // when Run returned, from the start of the trial
}

func (o outcome) admitted() bool { return o.err == nil && o.res != nil && o.res.Allowed() }

// turn returns the interval between two admissions of cost 1.
func turn(r weir.Request) time.Duration {
	n := time.Duration(min(r.Limit, math.MaxInt32))
	return (r.Duration + n - 1) / n
}

// visits returns a random history of arrivals for r, more than the queue holds.
func visits(s *suite, r weir.Request) history {
	h := make(history, 2+s.dice.IntN(2*s.Queue+4))
	for i := range h {
		h[i].r = r
		switch s.dice.IntN(3) {
		case 0:
			h[i].after = s.grain(s.dice.within(turn(r)))
		case 1:
			h[i].after = s.grain(s.dice.within(3 * turn(r)))
		}
		if s.dice.IntN(4) == 0 {
			h[i].r.Cost = 1 + s.dice.Uint64N(min(s.Burst(r.Limit), 3))
		}
	}
	return h
}

// eachVisit calls check with the outcomes of random arrivals.
func eachVisit(s *suite, check func(*trial, []arrival, []outcome)) {
	next := func() history { return visits(s, s.request(s.dice.pick())) }
	s.searchIn(next, func(h history) {
		arrivals := make([]arrival, len(h))
		var at time.Duration
		for i, step := range h {
			at += step.after
			arrivals[i] = arrival{at: at, r: step.r}
		}
		s.try(func(tr *trial) { check(tr, arrivals, tr.visit(arrivals...)) })
	})
}

// pace checks that callers are admitted Duration/Limit apart, times the cost of the one before, the
// first at once, and that none waits longer.
func pace(s *suite) {
	eachVisit(s, func(tr *trial, arrivals []arrival, outcomes []outcome) {
		var free time.Duration // when the next caller may be admitted
		for i, o := range outcomes {
			if !o.admitted() {
				continue
			}
			each := turn(arrivals[i].r) * time.Duration(max(arrivals[i].r.Cost, 1))
			due := max(free, arrivals[i].at)
			if o.done < due-s.Granule+1 || o.done > due+s.Granule-1 {
				tr.failf("caller %d arrived at %v and was admitted at %v, must be at %v: "+
					"at once, or after the turn before",
					i+1, arrivals[i].at, o.done, due)
			}
			free = o.done + each
		}
	})
}

// order checks that callers are admitted in order of arrival.
func order(s *suite) {
	eachVisit(s, func(tr *trial, arrivals []arrival, outcomes []outcome) {
		last := time.Duration(-1)
		for i, o := range outcomes {
			if !o.admitted() {
				continue
			}
			if o.done < last {
				tr.failf("caller %d was admitted at %v, but a later arrival at %v", i+1, o.done, last)
			}
			last = o.done
		}
	})
}

// queue checks that a caller is denied, at once, if and only if Queue callers wait already.
func queue(s *suite) {
	eachVisit(s, func(tr *trial, arrivals []arrival, outcomes []outcome) {
		for i, o := range outcomes {
			at := arrivals[i].at
			waiting := 0
			for _, before := range outcomes[:i] {
				if before.admitted() && before.done > at {
					waiting++
				}
			}
			switch mustWait := o.admitted() && o.done > at; {
			case o.err != nil || o.res == nil:
				tr.failf("Run failed on a valid request: %v", o.err)
			case mustWait && waiting >= s.Queue:
				tr.failf("caller %d waited behind %d others; at most %d may wait", i+1, waiting, s.Queue)
			case !o.admitted() && waiting < s.Queue:
				tr.failf("caller %d was denied although only %d waited, of at most %d", i+1, waiting, s.Queue)
			case !o.admitted() && o.done != at:
				tr.failf("caller %d was denied after a wait; it must be denied at once", i+1)
			}
		}
	})
}

// queueRetryInstant is retryInstant for strategies that wait: a denied caller finds a place at
// ExpiresAt, and not before.
func queueRetryInstant(s *suite) {
	eachVisit(s, func(tr *trial, arrivals []arrival, outcomes []outcome) {
		for i, o := range outcomes {
			if o.err != nil || o.res == nil || o.admitted() {
				continue
			}
			retryAt := o.res.ExpiresAt.Sub(tr.origin)
			if retryAt <= arrivals[i].at {
				tr.failf("caller %d was denied: its ExpiresAt must be later than now", i+1)
			}
			retries(s, arrivals[:i+1], retryAt)
			return
		}
	})
}

// retries repeats the last arrival, which was denied, before and at retryAt, its ExpiresAt.
func retries(s *suite, arrivals []arrival, retryAt time.Duration) {
	denied := arrivals[len(arrivals)-1]
	for _, at := range []time.Duration{retryAt - s.Granule, denied.at + s.grain((retryAt-denied.at)/2),
		retryAt} {
		s.try(func(tr *trial) {
			again := append(slices.Clone(arrivals), arrival{at: at, r: denied.r})
			outcomes := tr.visit(again...)
			if last := outcomes[len(again)-1]; last.admitted() != (at == retryAt) {
				tr.failf("caller %d was denied until %v: the queue must have room then, and not before",
					len(arrivals), retryAt)
			}
		})
	}
}

// givingUp checks that a caller whose context is done leaves at once with its error, and that those
// behind it move up.
func givingUp(s *suite) {
	if s.Queue < 2 {
		return
	}
	r := s.request(s.Limits[0])
	each := turn(r)
	for leaver := 1; leaver <= s.Queue; leaver++ {
		// The queue is filled at 0. One caller leaves before the first turn, and another takes its place.
		leaves := s.grain(each / 3)
		arrivals := slices.Repeat([]arrival{{r: r}}, s.Queue+1)
		arrivals[leaver].givesUp = leaves
		arrivals = append(arrivals, arrival{at: s.grain(each / 2), r: r})
		s.try(func(tr *trial) {
			outcomes := tr.visit(arrivals...)
			gone := outcomes[leaver]
			if gone.res != nil || !errors.Is(gone.err, context.Canceled) || gone.done != leaves {
				tr.failf("the context of caller %d was done at %v: Run must return its error then, "+
					"and no Result", leaver+1, leaves)
			}
			turns := time.Duration(0)
			for i, o := range outcomes {
				if i == leaver {
					continue
				}
				if due := turns * each; !o.admitted() || o.done < due || o.done > due+turns*s.Granule {
					tr.failf("caller %d must be admitted at %v, as caller %d left the queue", i+1,
						due, leaver+1)
				}
				turns++
			}
		})
	}
}

// separateQueues checks that other keys and Durations have queues of their own.
func separateQueues(s *suite) {
	r := s.request(s.Limits[0])
	other, longer := r, r
	other.Key = "other"
	longer.Duration *= 2
	all := []arrival{{r: r}, {r: r}, {r: other}}
	if !s.FixedDuration {
		all = append(all, arrival{r: longer})
	}
	s.try(func(tr *trial) {
		for i, o := range tr.visit(all...) {
			if i != 1 && (!o.admitted() || o.done != 0) {
				tr.failf("caller %d is the first of its key and Duration: it must be admitted at once", i+1)
			}
		}
	})
}

// neverPasses checks that a cost over the limit and limit 0 are denied at once, for good, and take
// no place.
func neverPasses(s *suite) {
	limit := s.Limits[0]
	bad := []weir.Request{costing(s.request(limit), s.Burst(limit)+1),
		costing(s.request(limit), math.MaxUint64)}
	if !s.Fixed {
		bad = append(bad, s.request(0))
	}
	for _, r := range bad {
		s.try(func(tr *trial) {
			outcomes := tr.visit(arrival{r: r}, arrival{r: s.request(limit)})
			if o := outcomes[0]; o.err != nil || o.res == nil || o.res.Allowed() ||
				!o.res.ExpiresAt.IsZero() ||
				o.done != 0 {
				tr.failf("the first request can never pass: it must be denied at once, with the zero ExpiresAt")
			}
			if o := outcomes[1]; !o.admitted() || o.done != 0 {
				tr.failf("the second request must be admitted at once: the first was not counted")
			}
		})
	}
}
