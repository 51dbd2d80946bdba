package conformance

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

// rolling is the reference: an exact rolling window, one list of hits for each key and Duration, all under one mutex,
// looked through from one end to the other for every request. Nothing in it is clever.
type rolling struct {
	flaws
	now func() time.Time

	mu    sync.Mutex
	hits  map[slot][]hit  // guarded by mu
	limit map[slot]uint64 // guarded by mu; the limit last asked with
}

type slot struct {
	key string
	d   time.Duration
}

type hit struct {
	at   time.Time
	cost uint64
	r    *weir.Request // nil, unless the requests are kept
}

// flaws break rolling, each in one way. All zero it is right.
type flaws struct {
	slot         func(weir.Request) slot         // which requests are counted together
	spare        uint64                          // so much is admitted over the limit
	late         time.Duration                   // hits count so much longer
	early        time.Duration                   // denials name an instant so much earlier
	tooLong      time.Duration                   // admissions name an instant so much later
	racy         bool                            // looks, lets others run, and counts then
	counting     bool                            // counts what it denies
	pushing      bool                            // makes those it denies wait for longer
	vague        bool                            // tells those it denies to come back one Duration later
	stale        bool                            // the total leaves this request out
	wrapping     bool                            // adds without a thought for the end of the numbers
	first        bool                            // admits the first request whatever its limit
	later        bool                            // a cost over the limit is told to come back
	forgetting   bool                            // a changed limit starts from nothing
	keeping      bool                            // keeps the request and reads its cost later
	unchecked    bool                            // takes any input
	peekCounts   bool                            // Peek is Run
	anyPeriod    bool                            // refunds into whatever period it is
	negative     bool                            // refunds more than there is
	resetsAll    bool                            // forgets every key
	seedLowers   bool                            // seeds lower too
	seedsLate    bool                            // seeds what is over
	racyChanges  bool                            // looks, lets others run, and refunds or charges then
	chargesToCap bool                            // charges no more than fits
	sweeps       func(age, d time.Duration) bool // removes, beside what is over, what is that old
}

func newRolling(clock Clock, flaws flaws) *rolling {
	return &rolling{flaws: flaws, now: clock.Now, hits: make(map[slot][]hit), limit: make(map[slot]uint64)}
}

func (s *rolling) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return s.decide(r, true)
}

func (s *rolling) Peek(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return s.decide(r, s.peekCounts)
}

func (s *rolling) decide(r *weir.Request, count bool) (*weir.Result, error) {
	if err := s.check(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slotOf(r)
	if s.forgetting && s.limit[slot] != r.Limit {
		delete(s.hits, slot)
		s.limit[slot] = r.Limit
	}
	live, now := s.live(r)
	used, cost, limit := sum(live), max(r.Cost, 1), min(r.Limit, math.MaxInt64)+s.spare
	if s.first && len(live) == 0 {
		limit = max(limit, cost)
	}
	if s.racy {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		live, _ = s.live(r)
	}
	mine := hit{at: now, cost: cost}
	if s.keeping {
		mine.r = r
	}
	fits := cost <= limit && used <= limit-cost || s.wrapping && used+cost <= limit
	if count && (fits || s.counting) {
		s.hits[slot] = append(live, mine)
	}
	res := &weir.Result{State: weir.Deny, TotalRequests: used}
	switch {
	case fits:
		res.State, res.ExpiresAt = weir.Allow, now.Add(r.Duration+s.tooLong)
		if !s.stale {
			res.TotalRequests += cost
		}
	case cost <= limit && s.vague || cost > limit && s.later:
		res.ExpiresAt = now.Add(r.Duration)
	case cost <= limit:
		res.ExpiresAt = s.roomAt(live, limit-cost).Add(r.Duration - s.early)
	}
	if count && !fits && s.pushing && len(live) > 0 {
		s.hits[slot][len(live)-1].at = now
	}
	return res, nil
}

func (s *rolling) slotOf(r *weir.Request) slot {
	if s.slot != nil {
		return s.flaws.slot(*r)
	}
	return slot{r.Key, r.Duration}
}

// live returns the hits that count, and the instant that counts as now: never one before the newest hit.
func (s *rolling) live(r *weir.Request) (live []hit, now time.Time) {
	all := s.hits[s.slotOf(r)]
	now = s.now()
	if n := len(all); n > 0 && now.Before(all[n-1].at) {
		now = all[n-1].at
	}
	for _, h := range all {
		if now.Before(h.at.Add(r.Duration + s.late)) {
			live = append(live, h)
		}
	}
	return live, now
}

func sum(live []hit) (used uint64) {
	for _, h := range live {
		if h.r != nil {
			h.cost = max(h.r.Cost, 1)
		}
		if used+h.cost < used {
			return math.MaxUint64
		}
		used += h.cost
	}
	return used
}

// roomAt returns the time of the hit that must go for no more than used to be left.
func (s *rolling) roomAt(live []hit, used uint64) time.Time {
	for i, h := range live {
		if sum(live[i+1:]) <= used {
			return h.at
		}
	}
	return s.now()
}

func (s *rolling) check(r *weir.Request) error {
	switch d := r.Duration; {
	case s.unchecked:
		return nil
	case len(r.Key) < 1 || len(r.Key) > 1024:
		return fmt.Errorf("%w: %d bytes", weir.ErrID, len(r.Key))
	case d < time.Millisecond || d > 365*day || d%time.Millisecond != 0:
		return fmt.Errorf("%w: %v", weir.ErrScale, d)
	}
	return nil
}

// change calls f on what counts, unless r is bad.
func (s *rolling) change(r *weir.Request, f func(live []hit, now time.Time) []hit) error {
	if err := s.check(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live, now := s.live(r)
	if s.racyChanges {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.hits[s.slotOf(r)] = f(live, now)
	return nil
}

func (s *rolling) Refund(_ context.Context, r *weir.Request, taken *weir.Result) error {
	return s.change(r, func(live []hit, _ time.Time) []hit {
		back, at := max(r.Cost, 1), taken.ExpiresAt.Add(-r.Duration)
		for i := range live {
			if h := &live[i]; taken.Allowed() && (h.at.Equal(at) || s.anyPeriod) {
				some := min(back, h.cost)
				if s.negative {
					some = back
				}
				h.cost -= some
				back -= some
			}
		}
		return live
	})
}

func (s *rolling) Reset(_ context.Context, r *weir.Request) error {
	return s.change(r, func([]hit, time.Time) []hit {
		if s.resetsAll {
			clear(s.hits)
		}
		return nil
	})
}

func (s *rolling) Seed(_ context.Context, r *weir.Request, counted *weir.Result) error {
	return s.change(r, func(live []hit, now time.Time) []hit {
		used := sum(live)
		if !counted.ExpiresAt.After(now) && !s.seedsLate {
			return live
		}
		if s.seedLowers {
			live, used = nil, 0
		}
		return append(live, hit{at: now, cost: max(counted.TotalRequests, used) - used})
	})
}

func (s *rolling) Charge(_ context.Context, r *weir.Request) error {
	return s.change(r, func(live []hit, now time.Time) []hit {
		cost := max(r.Cost, 1)
		if used := sum(live); s.chargesToCap {
			cost = min(cost, r.Limit-min(r.Limit, used))
		}
		return append(live, hit{at: now, cost: cost})
	})
}

// sweep removes the lists in which nothing counts any more.
func (s *rolling) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for slot, hits := range s.hits {
		age := slot.d
		if len(hits) > 0 {
			age = now.Sub(hits[len(hits)-1].at)
		}
		if age >= slot.d || s.sweeps != nil && s.sweeps(age, slot.d) {
			delete(s.hits, slot)
		}
	}
}
