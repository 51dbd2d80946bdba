package conformance

import (
	"context"
	"errors"

	"github.com/weirgo/weir"
)

// receipt checks that an admission which is kept is given back by its Receipt once, in parts or as
// a whole, and that a denial is nothing to give back.
func receipt(s *suite) {
	if !keeps(s) {
		return
	}
	for _, limit := range s.Limits {
		r, most := s.request(limit), s.Burst(limit)
		all := costing(r, most)
		s.try(func(tr *trial) {
			kept := tr.kept(all, "the key is new")
			tr.giveBack(all, kept, 0)
			tr.giveBack(all, kept, 0)
			tr.total(all, most, "it was given back by its Receipt")
			tr.denies(costing(r, 1), "giving back twice by one Receipt must not make more than there was")
			denied, _ := tr.keep(costing(r, 1))
			tr.giveBack(costing(r, 1), denied, 0)
			tr.denies(costing(r, 1), "a denial took nothing, so there was nothing to give back")
		})
		if most < 2 {
			continue
		}
		s.try(func(tr *trial) {
			kept := tr.kept(all, "the key is new")
			tr.giveBack(costing(r, 1), kept, most-1)
			tr.total(costing(r, 1), most, "a part was given back by the Receipt")
			tr.giveBack(all, kept, 0)
			tr.total(costing(r, most-1), most, "the rest was given back by the Receipt")
			tr.denies(costing(r, 1), "no more may be given back by a Receipt than was taken")
		})
	}
}

// keeps reports whether the strategy gives Receipts.
func keeps(s *suite) (can bool) {
	s.try(func(tr *trial) {
		r := s.request(s.Limits[0])
		_, err := tr.asking(&weir.Op{Keep: true})(context.Background(), &r)
		can = !errors.Is(err, errors.ErrUnsupported)
	})
	return can
}
