package conformance

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// hold checks that a place counts until it is released, as long as it is renewed, and then leaves
// no trace; and that a place that ended by itself is not given back at another's cost.
func hold(s *suite) {
	s.compare(variety{}, func(tr *trial, h history, i int, want weir.Result) {
		tr.expect(h[i].r, want, "the Result without the places that were released")
		if i+1 < len(h) {
			place, res := tr.acquire(h[i+1].r)
			if res.Allowed() {
				tr.release(h[i+1].r, place)
			}
		}
	})
	for _, limit := range s.Limits {
		holdsAll(s, limit)
		holdsRenewed(s, limit)
		releasesLate(s, limit)
		if !s.Inexact {
			holdsAtOnce(s, limit)
		}
	}
}

// holdsAll holds as much as there is in two places.
func holdsAll(s *suite, limit uint64) {
	r, most := s.request(limit), s.Burst(limit)
	if most < 2 {
		return
	}
	s.try(func(tr *trial) {
		some, rest := costing(r, most/2), costing(r, most-most/2)
		first := tr.holds(some, "the key is new")
		second := tr.holds(rest, "it just fits")
		tr.full(r, "nothing is left")
		tr.denies(r, "nothing is left")
		tr.release(some, first)
		tr.full(costing(r, most/2+1), "only one place was released")
		tr.total(some, most, "a place was released")
		tr.release(rest, second)
		tr.total(rest, most, "the other place was released")
		tr.full(r, "nothing is left")
	})
}

// holdsRenewed renews a place for three Durations.
func holdsRenewed(s *suite, limit uint64) {
	r := costing(s.request(limit), s.Burst(limit))
	s.try(func(tr *trial) {
		place := tr.holds(r, "the key is new")
		for range 6 {
			tr.clock.Advance(r.Duration / 2)
			if !tr.renew(r, place) {
				tr.failf("the place must be held, since it was renewed in time")
			}
			tr.denies(costing(r, 1), "a place is held, and was renewed in time")
		}
		tr.release(r, place)
		tr.total(r, r.Cost, "the place was released")
	})
}

// releasesLate releases a place that was not renewed for a Duration, and may have been given away.
func releasesLate(s *suite, limit uint64) {
	r := costing(s.request(limit), s.Burst(limit))
	for _, renewed := range []bool{false, true} {
		s.try(func(tr *trial) {
			late := tr.holds(r, "the key is new")
			tr.clock.Advance(r.Duration)
			_, res := tr.acquire(r)
			if !res.Allowed() { // the strategy knows that its holder lives
				tr.release(r, late)
				tr.total(r, r.Cost, "the place was released")
				return
			}
			if renewed && tr.renew(r, late) {
				tr.failf("the place must be lost, since it was given away")
			}
			tr.release(r, late)
			tr.denies(costing(r, 1), "the place that was released had been given away before")
		})
		s.try(func(tr *trial) {
			late := tr.holds(r, "the key is new")
			tr.clock.Advance(r.Duration)
			if !tr.renew(r, late) {
				tr.failf("the place must be held, since it was not given away")
			}
			tr.denies(costing(r, 1), "a place is held")
		})
	}
}

// holdsAtOnce has concurrent callers hold and release.
func holdsAtOnce(s *suite, limit uint64) {
	cost, fit := portion(s.Burst(limit))
	r := costing(s.request(limit), cost)
	s.try(func(tr *trial) {
		crowd := crowd{suite: s, callers: 4}
		var inside atomic.Int64
		crowd.each(50, func() error {
			mine := r
			place := &weir.Op{Verb: weir.OpHold}
			res, err := tr.asking(place)(context.Background(), &mine)
			if err != nil || !res.Allowed() {
				return err
			}
			if n := inside.Add(1); n > int64(fit) {
				return errors.New("more than the limit are held at one time")
			}
			inside.Add(-1)
			release := &weir.Op{Verb: weir.OpRelease, Receipt: place.Receipt}
			_, err = tr.asking(release)(context.Background(), &mine)
			return err
		})
		crowd.checkError(tr)
		tr.total(costing(r, s.Burst(limit)), s.Burst(limit), "everything was released")
	})
}
