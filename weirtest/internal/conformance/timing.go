package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// The laws of time.

// span checks that no span of one Duration admits more than declared.
func span(s *suite) {
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				if tr.run(step.r).Allowed() {
					checkSpan(tr, step.r)
				}
			}
		})
	})
}

// checkSpan adds up what was admitted in the Duration that ends just after the last event.
func checkSpan(tr *trial, r weir.Request) {
	var sum uint64
	from := tr.clock.Now().Add(-r.Duration)
	for _, e := range tr.events {
		if e.res.Allowed() && e.at.After(from) {
			sum += max(e.r.Cost, 1)
		}
	}
	if most := tr.suite.Span(r.Limit); sum > most {
		tr.failf("%d were admitted in the last %v; at most %d may be", sum, r.Duration, most)
	}
}

// aligned checks that periods are whole Durations from the Unix epoch: also those of seven times a
// Duration. Time.Truncate counts from the year 1, as which hours and days begin, but no weeks.
func aligned(s *suite) {
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				checkAligned(tr, step.r)
			}
		})
	})
	r := s.request(s.Limits[0])
	r.Duration *= 7
	if s.FixedDuration || r.Duration > 30*day {
		return
	}
	s.try(func(tr *trial) {
		other := r
		other.Key += " other"
		// It was not declared, so a strategy need not take it.
		if _, err := tr.Run(context.Background(), &other); !errors.Is(err, weir.ErrScale) {
			checkAligned(tr, r)
		}
	})
}

func checkAligned(tr *trial, r weir.Request) {
	res := tr.run(r)
	if past := res.ExpiresAt.Sub(time.Unix(0, 0)) % r.Duration; res.Allowed() && past != 0 {
		tr.failf("the last ExpiresAt is %v past a whole number of Durations from the Unix epoch", past)
	}
}

// denialTakesNothing checks that without the denied requests nothing changes for the others.
func denialTakesNothing(s *suite) {
	for _, limit := range s.Limits {
		if most := s.Burst(limit); most >= 5 {
			roomStays(s, limit, most)
		}
	}
	s.search(variety{}, func(h history) {
		full := s.trace(h)
		s.replay(full, "the Result with the denied requests",
			func(i int) bool { return full.verdicts[i].Allowed() })
	})
}

// roomStays uses 8 of 10, runs a cost of 5, which does not fit, and then one of 2, which does.
func roomStays(s *suite, limit, most uint64) {
	r, room := s.request(limit), most/5
	s.try(func(tr *trial) {
		tr.admits(costing(r, most-room), "the key is new")
		tr.denies(costing(r, most/2), fmt.Sprintf("only %d are left", room))
		tr.admits(costing(r, room), fmt.Sprintf("%d are left, as the denial before is not counted", room))
	})
}

// hammering checks that a caller that retries early gets the same ExpiresAt each time, and is
// admitted then.
func hammering(s *suite) {
	s.search(variety{}, func(h history) {
		r, denied, now, ok := denial(s, h)
		if !ok {
			return
		}
		s.try(func(tr *trial) {
			tr.play(h)
			for i := range 4 {
				tr.clock.Set(now.Add(s.grain(denied.ExpiresAt.Sub(now) / 4 * time.Duration(i))))
				res := tr.denies(r, "its time has not come")
				if !res.ExpiresAt.Equal(denied.ExpiresAt) {
					tr.failf("nothing was admitted since the first denial: ExpiresAt must stay %v",
						denied.ExpiresAt.Sub(tr.origin))
				}
			}
			tr.clock.Set(denied.ExpiresAt)
			tr.admits(r, "this is ExpiresAt of the denial")
		})
	})
}

// denial plays h and returns its last request. ok is false if that was admitted or can never pass.
func denial(s *suite, h history) (r weir.Request, res weir.Result, now time.Time, ok bool) {
	r, res, now = s.trace(h).last()
	return r, res, now, !res.Allowed() && !res.ExpiresAt.IsZero()
}

// retryInstant checks that a denied request is denied at every instant before its ExpiresAt, and
// admitted at it. Each instant is tried on a new strategy.
func retryInstant(s *suite) {
	s.search(variety{}, func(h history) {
		r, denied, now, ok := denial(s, h)
		if !ok {
			return
		}
		wait := denied.ExpiresAt.Sub(now)
		try := func(at time.Time, want func(*trial, weir.Request, string) weir.Result, why string) {
			s.try(func(tr *trial) {
				tr.play(h)
				if wait <= 0 {
					tr.failf("the last request was denied: its ExpiresAt must be later than now")
				}
				tr.clock.Set(at)
				want(tr, r, why)
			})
		}
		for _, early := range instants(s, now, wait, r.Duration) {
			try(early, (*trial).denies, fmt.Sprintf("ExpiresAt of the denial is %v later",
				denied.ExpiresAt.Sub(early)))
		}
		try(denied.ExpiresAt, (*trial).admits, "this is ExpiresAt of the denial")
	})
}

// instants returns some of the instants in [now, now+wait): the last, those at the edges of
// windows, and a random one, which depends on wait alone.
func instants(s *suite, now time.Time, wait, d time.Duration) (all []time.Time) {
	chance := rand.New(rand.NewPCG(1, uint64(wait)))
	edge := d - now.Sub(time.Unix(0, 0))%d
	for _, after := range []time.Duration{
		wait - s.Granule, wait - time.Millisecond, edge - s.Granule, edge,
		time.Duration(chance.Int64N(max(1, int64(wait)))),
	} {
		after = s.grain(after)
		if after < wait {
			all = append(all, now.Add(after))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// freshAgain checks that a key is as new from the ExpiresAt of its last admission on, and not
// before.
func freshAgain(s *suite) {
	s.search(variety{}, func(h history) {
		r, last, now := s.trace(h).last()
		if !last.Allowed() {
			return
		}
		most := s.Burst(r.Limit)
		all := costing(r, most)
		s.try(func(tr *trial) {
			tr.play(h)
			if !last.ExpiresAt.After(now) {
				tr.failf("the last request was admitted: its ExpiresAt must be later than now")
			}
			tr.clock.Set(last.ExpiresAt.Add(-s.Granule))
			tr.denies(all, "something admitted before still counts")
			tr.clock.Set(last.ExpiresAt)
			tr.total(all, most, "nothing admitted before counts any more")
		})
		s.try(func(tr *trial) {
			tr.play(h)
			tr.clock.Set(last.ExpiresAt.Add(s.grain(r.Duration * 3 / 7)))
			tr.total(all, most, "nothing admitted before counts any more")
		})
	})
}

// clockBack checks that a clock that steps back and forth gains a used-up key nothing.
func clockBack(s *suite) {
	s.search(variety{}, func(h history) {
		for _, share := range []time.Duration{2, 4, 16, 1 << 60} {
			s.try(func(tr *trial) {
				tr.play(h)
				wentBack(tr, costing(h[0].r, 1), share)
			})
		}
	})
}

// wentBack uses the key up late in a window, steps back by d/share, within the window, and forth
// again.
func wentBack(tr *trial, one weir.Request, share time.Duration) {
	d := one.Duration
	now := tr.clock.Now()
	late := now.Add(d - now.Sub(time.Unix(0, 0))%d + tr.suite.grain(d/4*3))
	tr.clock.Set(late)
	drain(tr, one)
	tr.clock.Set(late.Add(-max(tr.suite.Granule, tr.suite.grain(d/share))))
	tr.denies(one, "the key is used up, and earlier it was no less so")
	tr.clock.Set(late)
	tr.denies(one, "the key is used up, and the clock only went back and forth")
}

// drain uses the key up.
func drain(tr *trial, one weir.Request) {
	most, used := tr.suite.Burst(one.Limit), uint64(0)
	for cost := most; cost > 0; {
		if !tr.run(costing(one, cost)).Allowed() {
			cost /= 2
			continue
		}
		used += cost
		if used > most {
			tr.failf("%d were admitted at one instant; at most %d may be", used, most)
		}
	}
}

// sweep checks that removing what is over changes nothing.
func sweep(s *suite) {
	v := variety{keys: []string{key, "other"}, durations: s.Durations}
	s.compare(v, func(tr *trial, h history, i int, want weir.Result) {
		tr.sweep()
		tr.expect(h[i].r, want, "so it was without the sweep just before it")
	})
}
