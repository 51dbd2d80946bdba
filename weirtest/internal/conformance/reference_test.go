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

// rolling is the reference: an exact rolling window that keeps one list of hits for each key and
// Duration under one mutex and scans it for every request.
type rolling struct {
	flaws
	now func() time.Time

	mu    sync.Mutex
	hits  map[slot][]hit  // guarded by mu
	limit map[slot]uint64 // guarded by mu; the limit of the last request
}

type slot struct {
	key string
	d   time.Duration
}

type hit struct {
	at   time.Time
	cost uint64
	r    *weir.Request // nil unless keepsRequest is set
}

// flaws are defects of a rolling window, for tests that set one of them. The zero value has none.
type flaws struct {
	slot            func(weir.Request) slot // which requests share a count
	spare           uint64                  // the cost admitted over the limit
	late            time.Duration           // how much longer a hit counts
	early           time.Duration           // how much too early ExpiresAt of a denial is
	tooLong         time.Duration           // how much too late ExpiresAt of an admission is
	readsThenWrites bool                    // reads the count, yields, and then writes it
	writesAtOnce    bool                    // reads the count, and then writes it under another lock
	countsDenials   bool                    // counts denied requests
	extendsWait     bool                    // a denial extends the wait
	// ExpiresAt of a denial is always one Duration later
	wholeDuration     bool
	excludesSelf      bool // TotalRequests excludes this request
	overflows         bool // sums may overflow
	admitsFirst       bool // admits the first request at any limit
	retriesImpossible bool // a cost over the limit gets an ExpiresAt
	clearsOnChange    bool // a changed limit clears the count
	keepsRequest      bool // keeps the Request and reads its Cost later
	skipsValidation   bool // does not validate requests
	peekCounts        bool // Peek counts
	anyPeriod         bool // Refund applies to any period
	refundsBelowZero  bool // refunds more than was counted
	ignoresKeep       bool // Keep gives no Receipt
	returnsTwice      bool // a Receipt keeps its Cost
	returnsMore       bool // more is given back than is left of a Receipt
	resetsAll         bool // Reset applies to every key
	seedLowers        bool // Seed may lower the count
	seedsLate         bool // Seed applies a count that has expired
	racyChanges       bool // Refund and Charge read, yield, and then write
	chargesToCap      bool // Charge stops at the limit
	// Release gives back what others hold, if its own has ended
	releasesOthers bool
	renewsNothing  bool                            // Renew has no effect
	renewsOver     bool                            // Renew takes a place again though there is no room
	sweeps         func(age, d time.Duration) bool // also removes states of this age
}

func newRolling(clock Clock, flaws flaws) *rolling {
	return &rolling{flaws: flaws, now: clock.Now, hits: make(map[slot][]hit),
		limit: make(map[slot]uint64)}
}

// set sets the outcome of an op.
func set(op *weir.Op, res *weir.Result, err error) {
	op.Err = err
	if res != nil {
		op.Result = *res
	}
}

func (s *rolling) About() *weir.About {
	return &weir.About{Of: s, Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpReset,
		weir.OpCatchUp, weir.OpCharge, weir.OpHold, weir.OpRenew, weir.OpRelease)}
}

func (s *rolling) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		r := &op.Request
		switch op.Verb {
		case weir.OpTake:
			res, err := s.Run(ctx, r)
			set(op, res, err)
			op.Receipt = weir.Receipt{}
			if op.Keep && err == nil && !s.ignoresKeep {
				op.Receipt = weir.Receipt{Of: s, Cost: uint64(res.State) * max(r.Cost, 1)}
			}
		case weir.OpPeek:
			res, err := s.decide(r, s.peekCounts)
			set(op, res, err)
		case weir.OpReturn:
			op.Err = s.giveBack(op)
		case weir.OpReset:
			op.Err = s.reset(r)
		case weir.OpCatchUp:
			op.Err = s.seed(r, op.Backlog.Counted)
		case weir.OpCharge:
			op.Err = s.charge(r)
		case weir.OpHold:
			s.hold(ctx, op)
		case weir.OpRenew:
			s.renew(ctx, op)
		case weir.OpRelease:
			op.Err = s.release(op)
		default:
			op.Err = op.Unsupported(s.About())
		}
	}
}

func (s *rolling) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return s.decide(r, true)
}

func (s *rolling) decide(r *weir.Request, count bool) (*weir.Result, error) {
	if err := s.check(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slotOf(r)
	if s.clearsOnChange && s.limit[slot] != r.Limit {
		delete(s.hits, slot)
		s.limit[slot] = r.Limit
	}
	live, now := s.live(r)
	used, cost, limit := sum(live), max(r.Cost, 1), min(r.Limit, math.MaxInt64)+s.spare
	if s.admitsFirst && len(live) == 0 {
		limit = max(limit, cost)
	}
	if s.readsThenWrites {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		live, _ = s.live(r)
	}
	if s.writesAtOnce {
		s.mu.Unlock()
		s.mu.Lock()
	}
	mine := hit{at: now, cost: cost}
	if s.keepsRequest {
		mine.r = r
	}
	fits := cost <= limit && used <= limit-cost || s.overflows && used+cost <= limit
	if count && (fits || s.countsDenials) {
		s.hits[slot] = append(live, mine)
	}
	res := &weir.Result{State: weir.Deny, TotalRequests: used}
	switch {
	case fits:
		res.State, res.ExpiresAt = weir.Allow, now.Add(r.Duration+s.tooLong)
		if !s.excludesSelf {
			res.TotalRequests += cost
		}
	case cost <= limit && s.wholeDuration || cost > limit && s.retriesImpossible:
		res.ExpiresAt = now.Add(r.Duration)
	case cost <= limit:
		res.ExpiresAt = s.roomAt(live, limit-cost).Add(r.Duration - s.early)
	}
	if count && !fits && s.extendsWait && len(live) > 0 {
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

// live returns the hits that count and the current time, which is never before the newest hit.
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

// roomAt returns the time of the last hit that must expire before the count is at most used.
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
	case s.skipsValidation:
		return nil
	case len(r.Key) < 1 || len(r.Key) > 1024:
		return fmt.Errorf("%w: %d bytes", weir.ErrID, len(r.Key))
	case d < time.Millisecond || d > 365*day || d%time.Millisecond != 0:
		return fmt.Errorf("%w: %v", weir.ErrScale, d)
	}
	return nil
}

// change replaces the hits that count by f's result, unless r is invalid.
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

func (s *rolling) giveBack(op *weir.Op) error {
	r := op.Request
	if op.Receipt.Of != nil {
		r.Cost = min(max(r.Cost, 1), op.Receipt.Cost)
		if !s.returnsTwice {
			op.Receipt.Cost -= r.Cost
		}
		if s.returnsMore {
			r.Cost = max(op.Request.Cost, 1)
		}
		if r.Cost == 0 {
			return nil
		}
	}
	return s.refund(&r, &op.Result)
}

func (s *rolling) refund(r *weir.Request, taken *weir.Result) error {
	return s.change(r, func(live []hit, _ time.Time) []hit {
		back, at := max(r.Cost, 1), taken.ExpiresAt.Add(-r.Duration)
		for i := range live {
			if h := &live[i]; taken.Allowed() && (h.at.Equal(at) || s.anyPeriod) {
				some := min(back, h.cost)
				if s.refundsBelowZero {
					some = back
				}
				h.cost -= some
				back -= some
			}
		}
		return live
	})
}

func (s *rolling) reset(r *weir.Request) error {
	return s.change(r, func([]hit, time.Time) []hit {
		if s.resetsAll {
			clear(s.hits)
		}
		return nil
	})
}

func (s *rolling) seed(r *weir.Request, counted *weir.Result) error {
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

func (s *rolling) charge(r *weir.Request) error {
	return s.change(r, func(live []hit, now time.Time) []hit {
		cost := max(r.Cost, 1)
		if used := sum(live); s.chargesToCap {
			cost = min(cost, r.Limit-min(r.Limit, used))
		}
		return append(live, hit{at: now, cost: cost})
	})
}

// hold takes a hit, whose instant is the Receipt.
func (s *rolling) hold(ctx context.Context, op *weir.Op) {
	res, err := s.Run(ctx, &op.Request)
	set(op, res, err)
	op.Receipt = weir.Receipt{}
	if err == nil && res.Allowed() {
		op.Receipt.Of = res.ExpiresAt.Add(-op.Duration)
	}
}

func (s *rolling) release(op *weir.Op) error {
	return s.change(&op.Request, func(live []hit, _ time.Time) []hit {
		for i, h := range live {
			at := op.Receipt.Of.(time.Time)
			if h.at.Equal(at) && h.cost == max(op.Cost, 1) || s.releasesOthers {
				return append(live[:i], live[i+1:]...)
			}
		}
		return live
	})
}

func (s *rolling) renew(ctx context.Context, op *weir.Op) {
	op.Result, op.Err = weir.Result{State: weir.Allow}, nil
	if s.renewsNothing {
		return
	}
	op.Err = s.release(op)
	switch {
	case op.Err != nil:
	case s.renewsOver:
		op.Err = s.charge(&op.Request)
	default:
		receipt := op.Receipt
		s.hold(ctx, op)
		if !op.Result.Allowed() {
			op.Receipt = receipt
		}
	}
}

// sweep removes the lists whose hits have all expired.
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
