package conformance

import (
	"sync"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
)

// The laws of the verbs beside OpTake, for strategies that wait.

// queuePeek checks that Peek returns at once what Run would decide, and takes no place.
func queuePeek(s *suite) {
	r := s.request(s.Limits[0])
	for waiting := range s.Queue + 2 {
		s.try(func(tr *trial) {
			var wg sync.WaitGroup
			for range waiting {
				wg.Go(func() { tr.call(arrival{r: r}) })
				synctest.Wait()
			}
			before := time.Now()
			peeked := []weir.Result{tr.peek(r), tr.peek(r)}
			took := time.Since(before)
			o := tr.call(arrival{r: r})
			wg.Wait()
			tr.note(arrival{r: r}, o)
			for _, p := range peeked {
				if took != 0 || p.Allowed() != o.admitted() {
					tr.failf("%d callers came before: Peek must return at once what Run then decides", waiting)
				}
			}
		})
	}
}

// queueRefund checks that a refund shortens the wait by what has yet to leak, and no more.
func queueRefund(s *suite) {
	r := s.request(s.Limits[0])
	s.try(func(tr *trial) {
		tr.refund(r, tr.admits(r, "the queue is empty"))
		if o := tr.next(r); !o.admitted() || o.done != 0 {
			tr.failf("the last caller must be admitted at once: the one before was refunded")
		}
	})
	s.try(func(tr *trial) {
		old := tr.admits(r, "the queue is empty")
		tr.clock.Advance(turn(r))
		tr.admits(r, "the turn of the one before is over")
		tr.refund(r, old)
		if o := tr.next(r); o.admitted() && o.done == turn(r) {
			tr.failf("the last caller must wait: the refunded turn had already passed")
		}
	})
}

// queueReset checks that the next caller of this key and Duration is admitted at once, and no
// other.
func queueReset(s *suite) {
	r := s.request(s.Limits[0])
	other := r
	other.Key = "other"
	s.try(func(tr *trial) {
		tr.reset(r) // of an unused key
		tr.admits(r, "the queue is empty")
		tr.admits(other, "the queue is empty")
		tr.reset(r)
		if o := tr.next(r); !o.admitted() || o.done != 0 {
			tr.failf("the last caller must be admitted at once: the key was reset")
		}
		if o := tr.next(other); o.admitted() && o.done == 0 {
			tr.failf("the last caller must wait: another key was reset")
		}
	})
}

// queueCharge checks that a charged cost delays the next caller as an admitted one does.
func queueCharge(s *suite) {
	r := s.request(s.Limits[0])
	s.try(func(tr *trial) {
		tr.charge(costing(r, 2))
		tr.waits(r, 2*turn(r), "two were charged")
	})
}

// queueSeed checks that a seeded count delays the next caller, unless it is over or below the count
// here.
func queueSeed(s *suite) {
	r := s.request(s.Limits[0])
	counted := func(tr *trial) weir.Result {
		return weir.Result{State: weir.Allow, TotalRequests: 2,
			ExpiresAt: tr.clock.Now().Add(2 * turn(r))}
	}
	s.try(func(tr *trial) {
		tr.seed(r, counted(tr))
		tr.seed(r, counted(tr))
		tr.waits(r, 2*turn(r), "another store had counted two")
	})
	s.try(func(tr *trial) {
		tr.admits(costing(r, min(3, r.Limit)), "the queue is empty")
		tr.seed(r, counted(tr))
		tr.waits(r, time.Duration(min(3, r.Limit))*turn(r),
			"more passed here than another store had counted")
	})
	s.try(func(tr *trial) {
		old := counted(tr)
		tr.clock.Set(old.ExpiresAt)
		tr.seed(r, old)
		tr.waits(r, 0, "what another store had counted was over")
	})
}
