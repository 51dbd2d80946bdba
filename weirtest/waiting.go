package weirtest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
)

// The laws of strategies that wait. Each is played in a testing/synctest bubble, where to wait takes no time.

// arrival is a caller: when it comes, counted from the start of the trial, with what, and when it gives up.
type arrival struct {
	at      time.Duration
	r       weir.Request
	givesUp time.Duration // 0: never
}

// outcome is what became of a caller.
type outcome struct {
	res  *weir.Result
	err  error
	done time.Duration // when Run returned, counted from the start of the trial
}

func (o outcome) admitted() bool { return o.err == nil && o.res != nil && o.res.Allowed() }

// visit has callers arrive, in order, and returns when the last has left what became of them. A caller who arrives when
// another's turn comes finds it gone.
func (tr *trial) visit(arrivals ...arrival) []outcome {
	outcomes := make([]outcome, len(arrivals))
	var wg sync.WaitGroup
	for i, a := range arrivals {
		time.Sleep(time.Until(tr.origin.Add(a.at)))
		synctest.Wait()
		wg.Go(func() { outcomes[i] = tr.call(a) })
		synctest.Wait()
	}
	wg.Wait()
	for i, a := range arrivals {
		tr.note(a, outcomes[i])
	}
	return outcomes
}

// call asks as a does, and gives up long after any queue must have moved on.
func (tr *trial) call(a arrival) (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(3*tr.suite.Queue+100)*a.r.Duration)
	defer cancel()
	if a.givesUp != 0 {
		timer := time.AfterFunc(a.givesUp-a.at, cancel)
		defer timer.Stop()
	}
	o.res, o.err = tr.Run(ctx, &a.r)
	o.done = time.Since(tr.origin)
	return o
}

// note adds a caller to the history that a breach shows.
func (tr *trial) note(a arrival, o outcome) {
	tr.record(event{at: tr.origin.Add(a.at), call: "Run", r: a.r, err: o.err, took: o.done - a.at}, o.res)
}

// turn is how long after one caller the next one passes.
func turn(r weir.Request) time.Duration {
	n := time.Duration(min(r.Limit, math.MaxInt32))
	return (r.Duration + n - 1) / n
}

// visits returns random callers, more than the queue holds.
func (s *suite) visits(r weir.Request) []arrival {
	all := make([]arrival, 2+s.rng.IntN(2*s.Queue+4))
	var at time.Duration
	for i := range all {
		switch s.rng.IntN(3) {
		case 0:
			at += s.grain(s.within(turn(r)))
		case 1:
			at += s.grain(s.within(3 * turn(r)))
		}
		all[i] = arrival{at: at, r: r}
		if s.rng.IntN(4) == 0 {
			all[i].r.Cost = 1 + s.rng.Uint64N(min(s.Burst(r.Limit), 3))
		}
	}
	return all
}

// eachVisit plays random callers and has check look at what became of them.
func (s *suite) eachVisit(check func(*trial, []arrival, []outcome)) {
	for range s.Histories {
		arrivals := s.visits(s.request(s.pick(s.Limits)))
		if failure := s.visited(arrivals, check); failure != nil {
			panic(s.fewer(arrivals, failure, check))
		}
	}
}

// fewer returns the failure without the callers who could as well have stayed away, and with the others at round times.
func (s *suite) fewer(arrivals []arrival, failure *breach, check func(*trial, []arrival, []outcome)) *breach {
	try := func(simpler []arrival) bool {
		f := s.visited(simpler, check)
		if f != nil {
			arrivals, failure = simpler, f
		}
		return f != nil
	}
	for i := 0; i < len(arrivals); {
		if !try(slices.Delete(slices.Clone(arrivals), i, i+1)) {
			i++
		}
	}
	for i := range arrivals {
		cheap := slices.Clone(arrivals)
		cheap[i].r.Cost = 1
		try(cheap)
	}
	for _, round := range []time.Duration{time.Millisecond, turn(arrivals[0].r) / 2, turn(arrivals[0].r)} {
		rounder := slices.Clone(arrivals)
		for i := range rounder {
			rounder[i].at = s.grain(rounder[i].at.Truncate(round))
		}
		try(rounder)
	}
	return failure
}

func (s *suite) visited(arrivals []arrival, check func(*trial, []arrival, []outcome)) *breach {
	err := catch(func() {
		s.try(func(tr *trial) { check(tr, arrivals, tr.visit(arrivals...)) })
	})
	if err == nil {
		return nil
	}
	return err.(*breach)
}

// pace: callers pass Duration/Limit apart, times the cost of the one before, the first at once, and nobody waits longer
// than that takes.
func pace(s *suite) {
	s.eachVisit(func(tr *trial, arrivals []arrival, outcomes []outcome) {
		var free time.Duration // from when on the next one may pass
		for i, o := range outcomes {
			if !o.admitted() {
				continue
			}
			each := turn(arrivals[i].r) * time.Duration(max(arrivals[i].r.Cost, 1))
			due := max(free, arrivals[i].at)
			if o.done < due-s.Granule+1 || o.done > due+s.Granule-1 {
				tr.broken("caller %d came at %v and passed at %v, and must pass at %v: when the turn of the one before is over, or at once",
					i+1, arrivals[i].at, o.done, due)
			}
			free = o.done + each
		}
	})
}

// order: callers pass in the order in which they came.
func order(s *suite) {
	s.eachVisit(func(tr *trial, arrivals []arrival, outcomes []outcome) {
		last := time.Duration(-1)
		for i, o := range outcomes {
			if !o.admitted() {
				continue
			}
			if o.done < last {
				tr.broken("caller %d passed at %v, and one who came later before that, at %v", i+1, o.done, last)
			}
			last = o.done
		}
	})
}

// queue: a caller is denied, and at once, if and only if Queue callers wait already.
func queue(s *suite) {
	s.eachVisit(func(tr *trial, arrivals []arrival, outcomes []outcome) {
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
				tr.broken("Run could not decide a good request: %v", o.err)
			case mustWait && waiting >= s.Queue:
				tr.broken("caller %d waited, and %d waited before it; at most %d may", i+1, waiting, s.Queue)
			case !o.admitted() && waiting < s.Queue:
				tr.broken("caller %d was denied, and only %d waited, of the %d that may", i+1, waiting, s.Queue)
			case !o.admitted() && o.done != at:
				tr.broken("caller %d was denied after a wait; it must be told at once", i+1)
			}
		}
	})
}

// comeBack is RetryInstant for strategies that wait: who is denied finds a place at the instant it was told, and not
// before.
func comeBack(s *suite) {
	s.eachVisit(func(tr *trial, arrivals []arrival, outcomes []outcome) {
		for i, o := range outcomes {
			if o.err != nil || o.res == nil || o.admitted() {
				continue
			}
			told := o.res.ExpiresAt.Sub(tr.origin)
			if told <= arrivals[i].at {
				tr.broken("caller %d was denied, and so its ExpiresAt must be later than now", i+1)
			}
			s.comesBack(arrivals[:i+1], told)
			return
		}
	})
}

// comesBack has the last of the callers, who is denied, come back before and at the instant that it was told.
func (s *suite) comesBack(arrivals []arrival, told time.Duration) {
	denied := arrivals[len(arrivals)-1]
	for _, at := range []time.Duration{told - s.Granule, denied.at + s.grain((told-denied.at)/2), told} {
		s.try(func(tr *trial) {
			again := append(slices.Clone(arrivals), arrival{at: at, r: denied.r})
			outcomes := tr.visit(again...)
			if last := outcomes[len(again)-1]; last.admitted() != (at == told) {
				tr.broken("caller %d was told to come back at %v; whoever comes then finds a place, and nobody before", len(arrivals), told)
			}
		})
	}
}

// givingUp: a caller whose context is done leaves at once with its error, and those behind it move up.
func givingUp(s *suite) {
	if s.Queue < 2 {
		return
	}
	r := s.request(s.Limits[0])
	each := turn(r)
	for leaver := 1; leaver <= s.Queue; leaver++ {
		// The queue is filled at 0. One leaves before the first turn, and another comes in its place.
		leaves := s.grain(each / 3)
		arrivals := slices.Repeat([]arrival{{r: r}}, s.Queue+1)
		arrivals[leaver].givesUp = leaves
		arrivals = append(arrivals, arrival{at: s.grain(each / 2), r: r})
		s.try(func(tr *trial) {
			outcomes := tr.visit(arrivals...)
			gone := outcomes[leaver]
			if gone.res != nil || !errors.Is(gone.err, context.Canceled) || gone.done != leaves {
				tr.broken("caller %d gave up at %v, and must leave then, with the context's error and no Result", leaver+1, leaves)
			}
			turns := time.Duration(0)
			for i, o := range outcomes {
				if i == leaver {
					continue
				}
				if due := turns * each; !o.admitted() || o.done < due || o.done > due+turns*s.Granule {
					tr.broken("caller %d must pass at %v: the place of caller %d, who gave up, is not lost", i+1, due, leaver+1)
				}
				turns++
			}
		})
	}
}

// separateQueues: callers of other keys and Durations do not stand in the same queue.
func separateQueues(s *suite) {
	r := s.request(s.Limits[0])
	other, longer := r, r
	other.Key = "other"
	longer.Duration *= 2
	all := []arrival{{r: r}, {r: r}, {r: other}}
	if !s.Fixed {
		all = append(all, arrival{r: longer})
	}
	s.try(func(tr *trial) {
		for i, o := range tr.visit(all...) {
			if i != 1 && (!o.admitted() || o.done != 0) {
				tr.broken("caller %d is the first of its key and Duration, and must pass at once", i+1)
			}
		}
	})
}

// neverPasses: neither a cost over the limit nor limit 0 ever passes, and to ask takes no place and no time.
func neverPasses(s *suite) {
	limit := s.Limits[0]
	bad := []weir.Request{costing(s.request(limit), s.Burst(limit)+1), costing(s.request(limit), math.MaxUint64)}
	if !s.Fixed {
		bad = append(bad, s.request(0))
	}
	for _, r := range bad {
		s.try(func(tr *trial) {
			outcomes := tr.visit(arrival{r: r}, arrival{r: s.request(limit)})
			if o := outcomes[0]; o.err != nil || o.res == nil || o.res.Allowed() || !o.res.ExpiresAt.IsZero() || o.done != 0 {
				tr.broken("the first request can never pass: it must be denied at once, with the zero ExpiresAt")
			}
			if o := outcomes[1]; !o.admitted() || o.done != 0 {
				tr.broken("the second request must pass at once: the first took nothing")
			}
		})
	}
}
