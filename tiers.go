package weir

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// Tier is one of several limits that hold at once: at most Limit in Duration.
type Tier struct {
	Limit    uint64
	Duration time.Duration // a whole number of milliseconds, 1 ms to 365 days
}

// Tiers holds several limits at once over one key, all or nothing. Make one with [Limiter.Tiers].
type Tiers struct {
	l     *Limiter
	tiers []Tier
	cells []cells
	slice int64 // ms
	id    int64 // of the list of durations: tiers of other durations count by themselves
}

// cells is a tier in slices.
type cells struct{ limit, n int64 }

// Tiers returns a Strategy that admits a request if every tier has room for it, and charges it to all of them; a request
// that one tier denies is charged to none. The request's own Limit and Duration are ignored. The Result's figures are
// those of the tier that binds: of a denial, the one that has room last; of an admission, the one with the least room
// left. Among equals it is the first given. RunTier names it.
//
// Time is cut into slices as long as the greatest common divisor of the Durations. A tier counts the current slice and
// the earlier ones that with it make one Duration. So at most Limit are admitted in any span that is one slice shorter
// than Duration, and up to twice Limit in a whole one: 1000 in 1 s, 5000 in 10 s and 7000 in 15 s are counted by the
// second. It keeps 16 bytes for each slice of the longest tier that has a hit, however many tiers there are.
//
// It fails with [ErrScale] for no tier, for a Duration that a Request could not have, and for two of the same.
//
// The scheme is that of per-second counters in Redis, summed with MGET; it differs in being one decision, not two.
func (l *Limiter) Tiers(tiers ...Tier) (*Tiers, error) {
	if len(tiers) == 0 {
		return nil, fmt.Errorf("%w: no tiers", ErrScale)
	}
	var slice int64
	var durations strings.Builder
	seen := map[time.Duration]bool{}
	for _, tier := range tiers {
		var d demand
		err := d.read(&Request{Key: "tier", Duration: tier.Duration})
		if err == nil && seen[tier.Duration] {
			err = fmt.Errorf("%w: two tiers of %v", ErrScale, tier.Duration)
		}
		if err != nil {
			return nil, err
		}
		seen[tier.Duration] = true
		slice = gcd(slice, d.scale)
		fmt.Fprint(&durations, d.scale, " ")
	}
	l.slicesOnce.Do(func() {
		l.slices = newTable[slices](&l.room, nil)
		l.janitor.add(l.slices)
	})
	t := &Tiers{l: l, tiers: append([]Tier(nil), tiers...), slice: slice, id: l.tiers.id(durations.String())}
	for _, tier := range tiers {
		n := int64(tier.Duration/time.Millisecond) / slice
		t.cells = append(t.cells, cells{int64(min(tier.Limit, math.MaxInt64)), n})
	}
	return t, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// tierIDs numbers the lists of durations in use.
type tierIDs struct {
	mu  sync.Mutex
	ids map[string]int64 // guarded by mu
}

func (t *tierIDs) id(durations string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids == nil {
		t.ids = map[string]int64{}
	}
	id, ok := t.ids[durations]
	if !ok {
		id = int64(len(t.ids))
		t.ids[durations] = id
	}
	return id
}

// slices is one caller's counts. All but guard is guarded by guard.mu.
type slices struct {
	guard
	slice   int64       // ms
	longest int64       // slices
	counts  ring[count] // of the slices that have any, the oldest first
	sums    []sum       // for each tier
}

// count is the cost admitted in one slice.
type count struct{ slice, cost int64 }

// sum is the running total of one tier: of counts from the first on.
type sum struct {
	first int
	cost  int64
}

func (s *slices) end() int64 { return addSat(s.latest, s.longest*s.slice*msec) }

func (s *slices) over(period) int64                       { return s.overAt(s.end) }
func (s *slices) bury(_ period, _, now, grace int64) bool { return s.buryAt(s.end, now, grace) }

// advance forgets, for each tier, the slices that it does not look at from current on.
func (s *slices) advance(tiers []cells, current int64) {
	if s.sums == nil {
		s.sums = make([]sum, len(tiers))
	}
	unused := s.counts.n
	for i, t := range tiers {
		sum := &s.sums[i]
		for sum.first < s.counts.n && s.counts.at(sum.first).slice <= current-t.n {
			sum.cost -= s.counts.at(sum.first).cost
			sum.first++
		}
		unused = min(unused, sum.first)
	}
	for range unused {
		s.counts.pop()
	}
	for i := range s.sums {
		s.sums[i].first -= unused
	}
}

// add counts cost in the current slice, which is the newest or a newer one.
func (s *slices) add(current, cost int64) {
	if s.counts.n == 0 || s.counts.at(s.counts.n-1).slice < current {
		s.counts.push(count{slice: current})
	}
	for _, sum := range s.sums {
		cost = min(cost, math.MaxInt64-sum.cost) // what is added here is what advance subtracts
	}
	s.counts.at(s.counts.n - 1).cost += cost
	for i := range s.sums {
		s.sums[i].cost += cost
	}
}

// room returns the slice with whose start tier i has room for cost.
func (s *slices) room(i int, t cells, cost int64) int64 {
	excess := s.sums[i].cost - (t.limit - cost)
	for j := s.sums[i].first; j < s.counts.n; j++ {
		c := s.counts.at(j)
		if excess -= c.cost; excess <= 0 {
			return c.slice + t.n
		}
	}
	return s.counts.at(s.counts.n-1).slice + t.n
}

// Run implements [Strategy]. Its errors are those of [Limiter.CheckRate].
func (t *Tiers) Run(ctx context.Context, r *Request) (*Result, error) {
	res, err := t.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (t *Tiers) Decide(_ context.Context, r *Request) (Result, error) {
	res, _, err := t.decide(r, true)
	return res, err
}

// RunTier is Run, and the tier that binds.
func (t *Tiers) RunTier(_ context.Context, r *Request) (*Result, Tier, error) {
	res, i, err := t.decide(r, true)
	if err != nil {
		return nil, Tier{}, err
	}
	return &res, t.tiers[i], nil
}

// Peek implements [Peeker].
func (t *Tiers) Peek(_ context.Context, r *Request) (*Result, error) {
	res, _, err := t.decide(r, false)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// sound checks r by the first tier, whose figures a demand then has.
func (t *Tiers) sound(d *demand, r *Request) error {
	q := *r
	q.Limit, q.Duration = t.tiers[0].Limit, t.tiers[0].Duration
	return t.l.sound(d, &q)
}

// hold returns the counts of d, locked, with its sums at the slice that is now.
func (t *Tiers) hold(d *demand, create bool) (h held[slices], current int64, err error) {
	h, err = hold(t.l, t.l.slices, d.id, periodOf(t.slice, t.id), create)
	current, _ = floorDiv(millis(h.now), t.slice)
	if h.entry != nil {
		s := &h.state
		s.slice = t.slice
		for _, c := range t.cells {
			s.longest = max(s.longest, c.n)
		}
		s.advance(t.cells, current)
	}
	return h, current, err
}

func (t *Tiers) decide(r *Request, take bool) (res Result, tier int, err error) {
	var d demand
	if err := t.sound(&d, r); err != nil {
		return res, 0, err
	}
	impossible := t.impossible(d.cost)
	h, current, err := t.hold(&d, take && impossible < 0)
	if err != nil {
		return res, 0, err
	}
	var s *slices
	if h.entry != nil {
		s = &h.state
		defer s.mu.Unlock()
	} else {
		s = &slices{sums: make([]sum, len(t.cells))}
	}
	if impossible >= 0 {
		res, tier = Result{State: Deny, TotalRequests: uint64(s.sums[impossible].cost)}, impossible
	} else if res, tier = t.verdict(s, d.cost, current); take && res.State == Allow {
		s.latest = h.now
		s.add(current, d.cost)
		t.l.slices.lower(h.place, s.end())
	}
	if take {
		h.shard.count(res.State)
	}
	return res, tier, nil
}

// impossible returns the first tier whose limit is below cost, or -1.
func (t *Tiers) impossible(cost int64) int {
	for i, c := range t.cells {
		if cost > c.limit {
			return i
		}
	}
	return -1
}

// verdict decides on cost, and returns the tier that binds. It changes nothing.
func (t *Tiers) verdict(s *slices, cost, current int64) (Result, int) {
	tight, late := 0, -1
	var least, latest int64
	for i, c := range t.cells {
		left := c.limit - cost - s.sums[i].cost
		if i == 0 || left < least {
			tight, least = i, left
		}
		if left < 0 {
			if room := s.room(i, c, cost); late < 0 || room > latest {
				late, latest = i, room
			}
		}
	}
	if late >= 0 {
		return Result{Deny, uint64(s.sums[late].cost), t.begin(latest)}, late
	}
	return Result{Allow, uint64(s.sums[tight].cost + cost), t.begin(current + t.cells[tight].n)}, tight
}

// begin returns when a slice begins.
func (t *Tiers) begin(slice int64) time.Time { return t.l.clock.time(edge(slice, t.slice)) }

// Refund implements [Refunder]. The slice that taken.ExpiresAt stands for depends on the tier that bound, which a Result
// does not say: of the slices it can be, what is given back is given to the newest.
func (t *Tiers) Refund(_ context.Context, r *Request, taken *Result) error {
	var d demand
	err := t.sound(&d, r)
	if err != nil || !taken.Allowed() {
		return err
	}
	h, _, err := t.hold(&d, false)
	if err != nil || h.entry == nil {
		return err
	}
	s := &h.state
	defer s.mu.Unlock()
	end, _ := floorDiv(millis(t.l.clock.instantOf(taken.ExpiresAt)), t.slice)
	for j := s.counts.n - 1; j >= 0; j-- {
		for _, c := range t.cells {
			if x := s.counts.at(j); x.slice == end-c.n {
				back := min(x.cost, d.cost)
				x.cost -= back
				s.giveBack(j, back)
				return nil
			}
		}
	}
	return nil
}

// giveBack takes cost, which left counts.at(j), from the sums it is in.
func (s *slices) giveBack(j int, cost int64) {
	for i := range s.sums {
		if s.sums[i].first <= j {
			s.sums[i].cost -= cost
		}
	}
}

// Reset implements [Resetter].
func (t *Tiers) Reset(_ context.Context, r *Request) error {
	var d demand
	err := t.sound(&d, r)
	if err != nil {
		return err
	}
	h, _, err := t.hold(&d, false)
	if err != nil || h.entry == nil {
		return err
	}
	drop(t.l.slices, h)
	return nil
}

// Seed implements [Seeder]: the current slice is raised by what the sum that is nearest below lacks.
func (t *Tiers) Seed(_ context.Context, r *Request, counted *Result) error {
	if !t.l.clock.ahead(counted.ExpiresAt) {
		return t.sound(new(demand), r)
	}
	to := int64(min(counted.TotalRequests, math.MaxInt64))
	return t.add(r, func(_ *demand, s *slices) int64 {
		var most int64
		for _, sum := range s.sums {
			most = max(most, sum.cost)
		}
		return to - most
	})
}

// Charge implements [Charger].
func (t *Tiers) Charge(_ context.Context, r *Request) error {
	return t.add(r, func(d *demand, _ *slices) int64 { return d.cost })
}

func (t *Tiers) add(r *Request, more func(*demand, *slices) int64) error {
	var d demand
	err := t.sound(&d, r)
	if err != nil {
		return err
	}
	h, current, err := t.hold(&d, true)
	if err != nil {
		return err
	}
	s := &h.state
	defer s.mu.Unlock()
	if n := more(&d, s); n > 0 {
		s.latest = h.now
		s.add(current, n)
	}
	t.l.slices.lower(h.place, s.end()) // whatever was added: hold may have made it
	return nil
}
