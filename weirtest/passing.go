package weirtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// The laws of time passing.

// span: no span of one Duration admits more than declared.
func span(s *suite) {
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				if tr.ask(step.r).Allowed() {
					tr.checkSpan(step.r)
				}
			}
		})
	})
}

// checkSpan adds up what was admitted in the Duration that ends just after the last event.
func (tr *trial) checkSpan(r weir.Request) {
	var sum uint64
	from := tr.clock.Now().Add(-r.Duration)
	for _, e := range tr.events {
		if e.res.Allowed() && e.at.After(from) {
			sum += max(e.r.Cost, 1)
		}
	}
	if most := tr.suite.Span(r.Limit); sum > most {
		tr.broken("in the last %v %d were admitted, and at most %d may be", r.Duration, sum, most)
	}
}

// aligned: periods are cut from the Unix epoch.
func aligned(s *suite) {
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			for _, step := range h {
				tr.clock.Advance(step.after)
				res := tr.ask(step.r)
				// Not Time.Truncate, which counts from the year 1.
				if past := res.ExpiresAt.Sub(time.Unix(0, 0)) % step.r.Duration; res.Allowed() && past != 0 {
					tr.broken("the last ExpiresAt is %v past a whole number of Durations from the Unix epoch", past)
				}
			}
		})
	})
}

// denialTakesNothing: leave out the requests that were denied, and nothing changes for the others.
func denialTakesNothing(s *suite) {
	for _, limit := range s.Limits {
		if most := s.Burst(limit); most >= 5 {
			s.roomStays(limit, most)
		}
	}
	s.search(variety{}, func(h history) {
		full := s.trace(h)
		s.same(full, "what was denied left no trace", func(i int) bool { return full.verdicts[i].Allowed() })
	})
}

// roomStays uses 8 of 10, asks for 5, which does not fit, and then for the 2 that do.
func (s *suite) roomStays(limit, most uint64) {
	r, room := s.request(limit), most/5
	s.try(func(tr *trial) {
		tr.admits(costing(r, most-room), "the key is new")
		tr.denies(costing(r, most/2), fmt.Sprintf("only %d are left", room))
		tr.admits(costing(r, room), fmt.Sprintf("%d are left, since the denial before took nothing", room))
	})
}

// same plays the steps of full that stay, at the instants at which they were, and wants the verdicts they had. The
// verdicts of those that go do not matter.
func (s *suite) same(full trace, why string, stays func(i int) bool) {
	s.against(full, func(tr *trial) {
		for i, step := range full.history {
			tr.clock.Advance(step.after)
			if stays(i) {
				tr.wants(step.r, full.verdicts[i], why)
			}
		}
	})
}

// wants asks for r and for it to be told exactly this.
func (tr *trial) wants(r weir.Request, want weir.Result, why string) {
	tr.equal(tr.ask(r), want, why)
}

func (tr *trial) equal(got, want weir.Result, why string) {
	if got.State == want.State && got.TotalRequests == want.TotalRequests && got.ExpiresAt.Equal(want.ExpiresAt) {
		return
	}
	until := "never"
	if !want.ExpiresAt.IsZero() {
		until = want.ExpiresAt.Sub(tr.origin).String()
	}
	tr.broken("the last call must give %v, total %d, expires %s: %s", want.State, want.TotalRequests, until, why)
}

// hammering: a caller who asks again and again before its time is told the same instant each time, and is let in then.
func hammering(s *suite) {
	s.search(variety{}, func(h history) {
		r, denied, now, ok := s.denial(h)
		if !ok {
			return
		}
		s.try(func(tr *trial) {
			tr.play(h)
			for i := range 4 {
				tr.clock.Set(now.Add(s.grain(denied.ExpiresAt.Sub(now) / 4 * time.Duration(i))))
				res := tr.denies(r, "its time has not come")
				if !res.ExpiresAt.Equal(denied.ExpiresAt) {
					tr.broken("nothing was admitted since it was first denied, and so its ExpiresAt must stay %v", denied.ExpiresAt.Sub(tr.origin))
				}
			}
			tr.clock.Set(denied.ExpiresAt)
			tr.admits(r, "this is the instant it was told")
		})
	})
}

// denial plays h and returns its last request, if that was denied for a while.
func (s *suite) denial(h history) (r weir.Request, res weir.Result, now time.Time, ok bool) {
	r, res, now = s.trace(h).last()
	return r, res, now, !res.Allowed() && !res.ExpiresAt.IsZero()
}

// retryInstant: a denied request is denied at every instant before its ExpiresAt, and admitted at it. Each instant is
// tried on a past of its own.
func retryInstant(s *suite) {
	s.search(variety{}, func(h history) {
		r, denied, now, ok := s.denial(h)
		if !ok {
			return
		}
		wait := denied.ExpiresAt.Sub(now)
		try := func(at time.Time, want func(*trial, weir.Request, string) weir.Result, why string) {
			s.try(func(tr *trial) {
				tr.play(h)
				if wait <= 0 {
					tr.broken("the last request was denied, and so its ExpiresAt must be later than now")
				}
				tr.clock.Set(at)
				want(tr, r, why)
			})
		}
		for _, early := range s.instants(now, wait, r.Duration) {
			try(early, (*trial).denies, fmt.Sprintf("it was told to come back %v later", denied.ExpiresAt.Sub(early)))
		}
		try(denied.ExpiresAt, (*trial).admits, "this is the instant it was told")
	})
}

// instants returns some of the instants in [now, now+wait): the last, those about the edges of windows, and some by
// chance, which is always the same for the same wait.
func (s *suite) instants(now time.Time, wait, d time.Duration) (all []time.Time) {
	chance := rand.New(rand.NewPCG(1, uint64(wait)))
	edge := d - now.Sub(time.Unix(0, 0))%d
	for _, after := range []time.Duration{
		wait - s.Granule, wait - time.Millisecond, edge - s.Granule, edge,
		time.Duration(chance.Int64N(max(1, int64(wait)))),
	} {
		if after = s.grain(after); after < wait {
			all = append(all, now.Add(after))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// freshAgain: from an admission's ExpiresAt on the key is as new, and before it is not.
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
				tr.broken("the last request was admitted, and so its ExpiresAt must be later than now")
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

// clockBack: while the key is used up, going back in time and forth again gives nothing.
func clockBack(s *suite) {
	s.search(variety{}, func(h history) {
		for _, share := range []time.Duration{2, 4, 16, 1 << 60} {
			s.try(func(tr *trial) {
				tr.play(h)
				tr.wentBack(costing(h[0].r, 1), share)
			})
		}
	})
}

// wentBack uses up the key in the later half of a window, goes back by that share of it, so that the window is the same,
// and returns.
func (tr *trial) wentBack(one weir.Request, share time.Duration) {
	d := one.Duration
	now := tr.clock.Now()
	late := now.Add(d - now.Sub(time.Unix(0, 0))%d + tr.suite.grain(d/4*3))
	tr.clock.Set(late)
	tr.drain(one)
	tr.clock.Set(late.Add(-max(tr.suite.Granule, tr.suite.grain(d/share))))
	tr.denies(one, "the key is used up, and earlier it was no less so")
	tr.clock.Set(late)
	tr.denies(one, "the key is used up, and the clock only went back and forth")
}

// drain asks until not even one is admitted.
func (tr *trial) drain(one weir.Request) {
	most, used := tr.suite.Burst(one.Limit), uint64(0)
	for cost := most; cost > 0; {
		if !tr.ask(costing(one, cost)).Allowed() {
			cost /= 2
		} else if used += cost; used > most {
			tr.broken("at one instant %d were admitted, and at most %d may be", used, most)
		}
	}
}

// sweep: to remove what is over changes nothing.
func sweep(s *suite) {
	s.search(variety{keys: []string{key, "other"}, durations: s.Durations}, func(h history) {
		full := s.trace(h)
		s.against(full, func(tr *trial) {
			for i, step := range h {
				tr.clock.Advance(step.after)
				tr.sweep()
				tr.wants(step.r, full.verdicts[i], "so it was without the sweep just before it")
			}
		})
	})
}
