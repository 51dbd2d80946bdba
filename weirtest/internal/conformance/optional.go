package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// The laws of the verbs beside OpTake.

// offering returns why a law of a verb does not apply, if the strategy cannot do it.
func offering(v weir.Verb) func(*suite) string {
	return func(s *suite) string {
		if !can(s.offers, v) {
			return "the strategy cannot " + v.String()
		}
		return ""
	}
}

// can reports whether a strategy can do a verb.
func can(s weir.Strategy, v weir.Verb) bool { return weir.CounterOf(s).About().Verbs.Has(v) }

// peek checks that Peek returns what Run would, and counts nothing.
func peek(s *suite) {
	v := variety{keys: []string{key, "other"}}
	s.compare(v, func(tr *trial, h history, i int, want weir.Result) {
		r := h[i].r
		tr.equal(tr.peek(r), want, "that is what Run says here if nobody peeks")
		tr.equal(tr.peek(r), want, "it was only peeked at before")
		tr.expect(r, want, "it was only peeked at before")
	})
}

// refunds reports whether the strategy can give back without a Receipt.
func refunds(s *suite) (can bool) {
	s.try(func(tr *trial) {
		r, op := s.request(s.Limits[0]), tr.optional()["Refund"]
		if op != nil {
			_, err := tr.asking(op)(context.Background(), &r)
			can = !errors.Is(err, errors.ErrUnsupported)
		}
	})
	return can
}

// refund checks that a refunded request leaves no trace, and that refunding more than was taken
// gains nothing.
func refund(s *suite) {
	if !refunds(s) {
		return
	}
	s.compare(variety{}, func(tr *trial, h history, i int, want weir.Result) {
		tr.expect(h[i].r, want, "the Result without the refunded requests")
		if i+1 < len(h) { // one more of another cost, which is refunded
			more := h[i+1].r
			tr.refund(more, tr.run(more))
		}
	})
	s.search(variety{}, func(h history) { refundsLate(s, h) })
	for _, limit := range s.Limits {
		refundsOnce(s, limit)
		refundsInPeriod(s, limit)
		if !s.Inexact {
			refundsAtOnce(s, limit)
		}
	}
}

// refundsLate refunds the first request after the others were made. The key must not gain by it,
// compared with a history without the first request, as it would if a cost were refunded that no
// longer counts.
func refundsLate(s *suite, h history) {
	first, last := h[0], len(h)-1
	if last == 0 {
		return
	}
	without := slices.Clone(h[1:])
	without[0].after += first.after
	never := s.trace(without)
	s.against(never, func(tr *trial) {
		tr.clock.Advance(first.after)
		taken := tr.run(first.r)
		for i, step := range h[1:last] {
			tr.clock.Advance(step.after)
			if tr.run(step.r).State != never.verdicts[i].State {
				return // denied because of the first request: the histories are not comparable
			}
		}
		tr.clock.Advance(h[last].after)
		tr.refund(first.r, taken)
		res, most := tr.run(h[last].r), never.verdicts[last-1]
		if res.State == most.State && res.TotalRequests < most.TotalRequests ||
			res.Allowed() && !most.Allowed() {
			tr.failf(
				"the first request was refunded late: the key must not gain by it, compared with no first " +
					"request")
		}
	})
}

// refundsOnce refunds a denial, and refunds an admission twice.
func refundsOnce(s *suite, limit uint64) {
	r, most := s.request(limit), s.Burst(limit)
	s.try(func(tr *trial) {
		tr.total(costing(r, most), most, "the key is new")
		denied := tr.denies(r, "nothing is left")
		tr.refund(r, denied)
		tr.denies(r, "a denial took nothing, so there was nothing to give back")
	})
	s.try(func(tr *trial) {
		r := costing(r, (most+1)/2)
		taken := tr.admits(r, "the key is new")
		tr.refund(r, taken)
		tr.refund(r, taken)
		tr.total(costing(r, most), most, "everything was refunded")
		tr.denies(costing(r, 1), "giving back twice must not make more than there was")
	})
}

// refundsInPeriod refunds after the period is over and the next one is used up.
func refundsInPeriod(s *suite, limit uint64) {
	r, most := s.request(limit), s.Burst(limit)
	for _, late := range []time.Duration{0, time.Millisecond, r.Duration / 2, 3 * r.Duration} {
		s.try(func(tr *trial) {
			old := costing(r, most)
			taken := tr.admits(old, "the key is new")
			tr.clock.Set(taken.ExpiresAt.Add(s.grain(late)))
			tr.total(costing(r, most), most, "nothing admitted before counts any more")
			tr.refund(old, taken)
			tr.denies(costing(r, 1), "the refunded request was admitted in an earlier period")
		})
	}
}

// refundsAtOnce takes and refunds concurrently.
func refundsAtOnce(s *suite, limit uint64) {
	r, most := s.request(limit), s.Burst(limit)
	s.try(func(tr *trial) {
		crowd := crowd{suite: s, callers: 4}
		crowd.each(50, func() error {
			mine := r
			taken, err := tr.Run(context.Background(), &mine)
			if err != nil || taken == nil {
				return err
			}
			_, err = tr.asking(&weir.Op{Verb: weir.OpReturn, Result: *taken})(context.Background(), &mine)
			return err
		})
		crowd.checkError(tr)
		tr.total(costing(r, most), most, "concurrent callers were admitted and refunded")
		tr.denies(r, "concurrent callers were admitted and refunded, and then the limit was used up")
	})
}

// reset checks that Reset forgets this key in this Duration, and nothing else.
func reset(s *suite) {
	most := s.Burst(s.Limits[0])
	all := costing(s.request(s.Limits[0]), most)
	other, longer := all, all
	other.Key = "other"
	longer.Duration += time.Millisecond
	s.try(func(tr *trial) {
		tr.reset(all) // of an unused key
		tr.total(all, most, "the key is new")
		tr.total(other, most, "the key is new")
		if !s.FixedDuration {
			tr.total(longer, most, "the key is new in this Duration")
		}
		tr.reset(all)
		tr.total(all, most, "the key was reset")
		tr.denies(all, "the key is used up again")
		tr.denies(other, "another key was reset")
		if !s.FixedDuration {
			tr.denies(longer, "the key was reset in another Duration")
		}
	})
	s.search(variety{}, func(h history) {
		s.try(func(tr *trial) {
			tr.play(h)
			r := h[len(h)-1].r
			tr.reset(r)
			most := s.Burst(r.Limit)
			tr.total(costing(r, most), most, "the key was reset")
		})
	})
}

// seed checks that Seed raises the count to that of another store, in a period that is not over,
// and never lowers it.
func seed(s *suite) {
	for _, limit := range s.Limits {
		r, most := s.request(limit), s.Burst(limit)
		if most < 2 {
			continue
		}
		some := costing(r, (most+1)/2)
		var counted weir.Result // by another store of the same kind, at the same instant
		s.try(func(tr *trial) { counted = tr.admits(some, "the key is new") })
		seedRaises(s, r, counted, most)
		seedKeeps(s, r, counted, most)
		seedExpires(s, r, counted, most)
	}
}

func seedRaises(s *suite, r weir.Request, counted weir.Result, most uint64) {
	s.try(func(tr *trial) {
		tr.seed(r, counted)
		tr.seed(r, counted)
		left := most - counted.TotalRequests
		tr.denies(costing(r, left+1), "with what another store counted it does not fit")
		tr.total(costing(r, left), most, "with what another store counted it just fits")
	})
}

func seedKeeps(s *suite, r weir.Request, counted weir.Result, most uint64) {
	s.try(func(tr *trial) {
		tr.total(costing(r, most), most, "the key is new")
		tr.seed(r, counted)
		tr.denies(costing(r, 1), "more was counted here than in the other store")
	})
}

func seedExpires(s *suite, r weir.Request, counted weir.Result, most uint64) {
	s.try(func(tr *trial) {
		tr.seed(r, counted)
		tr.clock.Set(counted.ExpiresAt)
		tr.total(costing(r, most), most, "what the other store counted does not count any more")
	})
	s.try(func(tr *trial) {
		tr.clock.Set(counted.ExpiresAt)
		tr.seed(r, counted)
		tr.total(costing(r, most), most, "what the other store counted was over before")
	})
}

// charge checks that a charged cost counts as an admitted one, also beyond the limit.
func charge(s *suite) {
	s.compare(variety{}, func(tr *trial, h history, i int, want weir.Result) {
		if i%2 == 0 && want.Allowed() {
			tr.charge(h[i].r)
		} else {
			tr.expect(h[i].r, want, "the Result with requests in place of the charges")
		}
	})
	for _, limit := range s.Limits {
		chargesBeyond(s, s.request(limit), s.Burst(limit))
	}
}

// chargesBeyond charges more than the limit: by two, by math.MaxUint64, and concurrently.
func chargesBeyond(s *suite, r weir.Request, most uint64) {
	s.try(func(tr *trial) {
		tr.charge(costing(r, most))
		tr.charge(costing(r, 2))
		if res := tr.denies(r, "more is charged than the limit"); res.TotalRequests != most+2 {
			tr.failf("the last TotalRequests must be %d, the cost charged", most+2)
		}
	})
	s.try(func(tr *trial) {
		for range 3 {
			tr.charge(costing(r, math.MaxUint64))
			tr.denies(r, "more is charged than the limit")
		}
	})
	if s.Inexact {
		return
	}
	s.try(func(tr *trial) {
		crowd := crowd{suite: s, callers: 4}
		crowd.each(50, func() error {
			mine := r
			_, err := tr.asking(&weir.Op{Verb: weir.OpCharge})(context.Background(), &mine)
			return err
		})
		crowd.checkError(tr)
		if res := tr.run(costing(r, most)); res.Allowed() || res.TotalRequests != 200 {
			tr.failf(
				"4 concurrent charges of 50: the last request must be denied, with TotalRequests 200")
		}
	})
}
