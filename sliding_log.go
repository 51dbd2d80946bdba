package weir

import (
	"context"
	"math"
	"time"
)

// SlidingLog is the exact rolling window: it keeps the time of every admitted hit of the last Duration. Make one with
// [Limiter.SlidingLog].
type SlidingLog struct{ l *Limiter }

// SlidingLog returns the sliding window log as a Strategy: in any span of one Duration at most Limit are admitted, and a
// request is denied only if it would break that. A hit admitted at t counts until just before t+Duration.
//
// It keeps 16 bytes for each hit that counts, and 16 more in a caller's log that has a Meta; a denied request leaves
// nothing behind. A decision takes the caller's own lock and, over time, drops as many hits as were added.
//
// It is the sorted set strategy of the Go limiter over Redis, in process.
func (l *Limiter) SlidingLog() *SlidingLog {
	l.logsOnce.Do(func() {
		l.logs = newTable[log](&l.room, nil)
		l.janitor.add(l.logs)
	})
	return &SlidingLog{l}
}

// log is one caller's hits. All but guard is guarded by guard.mu.
type log struct {
	guard
	scale int64 // ms
	used  int64 // the sum of the costs in hits
	hits  ring[hit]
	metas ring[string] // beside hits, from the first hit that had a Meta until the log is empty
}

type hit struct{ at, cost int64 }

func (g *log) end() int64 { return addSat(g.latest, g.scale*msec) }

func (g *log) over(period) int64                       { return g.overAt(g.end) }
func (g *log) bury(_ period, _, now, grace int64) bool { return g.buryAt(g.end, now, grace) }

// drop forgets the hits that no longer count at now.
func (g *log) drop(now int64) {
	for g.hits.n > 0 {
		oldest := g.hits.at(0)
		if now < addSat(oldest.at, g.scale*msec) {
			return
		}
		g.used -= oldest.cost
		g.hits.pop()
		if g.metas.n > 0 {
			g.metas.pop()
		}
	}
	g.metas = ring[string]{}
}

func (g *log) add(now, cost int64, meta string) {
	g.latest = now
	cost = min(cost, math.MaxInt64-g.used) // what is added here is what drop subtracts
	g.used += cost
	if meta != "" && g.metas.n == 0 {
		for range g.hits.n {
			g.metas.push("")
		}
	}
	g.hits.push(hit{now, cost})
	if meta != "" || g.metas.n > 0 {
		g.metas.push(meta)
	}
}

// room returns the instant at which so much of what is used has left that cost fits under limit.
func (g *log) room(cost, limit int64) int64 {
	excess := g.used - (limit - cost)
	for i := range g.hits.n {
		h := g.hits.at(i)
		if excess -= h.cost; excess <= 0 {
			return addSat(h.at, g.scale*msec)
		}
	}
	return g.end()
}

// hold returns the log of d, locked and without what no longer counts at h.now.
func (s *SlidingLog) hold(d *demand, create bool) (held[log], error) {
	h, err := hold(s.l, s.l.logs, d.id, d.period(), create)
	if h.entry != nil {
		h.state.scale = d.scale
		h.state.drop(h.now)
	}
	return h, err
}

// noLog is the log of a caller who has none. Nothing is written to it.
var noLog log

// Run implements [Strategy]. Its errors are those of [Limiter.CheckRate].
func (s *SlidingLog) Run(ctx context.Context, r *Request) (*Result, error) {
	res, err := s.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (s *SlidingLog) Decide(_ context.Context, r *Request) (Result, error) { return s.decide(r, true) }

// Peek implements [Peeker].
func (s *SlidingLog) Peek(_ context.Context, r *Request) (*Result, error) {
	res, err := s.decide(r, false)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

func (s *SlidingLog) decide(r *Request, take bool) (res Result, err error) {
	var d demand
	if err := s.l.sound(&d, r); err != nil {
		return res, err
	}
	h, err := s.hold(&d, take && !d.never())
	if err != nil {
		return res, err
	}
	g := &noLog
	if h.entry != nil {
		g = &h.state
		defer g.mu.Unlock()
	}
	switch {
	case d.never():
		res = Result{State: Deny, TotalRequests: uint64(g.used)}
	case g.used > d.limit-d.cost:
		res = Result{Deny, uint64(g.used), s.l.clock.time(g.room(d.cost, d.limit))}
	default:
		expires := s.l.clock.time(addSat(h.now, d.scale*msec))
		res = Result{Allow, uint64(g.used + d.cost), expires}
		if take {
			g.add(h.now, d.cost, r.Meta)
			s.l.logs.lower(h.place, g.end())
		}
	}
	if take {
		h.shard.count(res.State)
	}
	return res, nil
}

// Entry is an admitted request in a log.
type Entry struct {
	At   time.Time
	Cost uint64
	Meta string
}

// Entries lists the admitted requests of r.Key in the last r.Duration, newest last: which users are behind this
// address? It counts nothing, and costs what the list is long.
func (s *SlidingLog) Entries(_ context.Context, r *Request) ([]Entry, error) {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil {
		return nil, err
	}
	h, err := s.hold(&d, false)
	if err != nil || h.entry == nil {
		return nil, err
	}
	g := &h.state
	defer g.mu.Unlock()
	entries := make([]Entry, 0, g.hits.n)
	for i := range g.hits.n {
		e := Entry{At: s.l.clock.time(g.hits.at(i).at), Cost: uint64(g.hits.at(i).cost)}
		if g.metas.n > 0 {
			e.Meta = *g.metas.at(i)
		}
		if e.Cost > 0 { // 0 was given back
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Refund implements [Refunder].
func (s *SlidingLog) Refund(_ context.Context, r *Request, taken *Result) error {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil || !taken.Allowed() {
		return err
	}
	h, err := s.hold(&d, false)
	if err != nil || h.entry == nil {
		return err
	}
	g := &h.state
	defer g.mu.Unlock()
	at := addSat(s.l.clock.instantOf(taken.ExpiresAt), -d.scale*msec)
	for i := g.hits.n - 1; i >= 0 && d.cost > 0 && g.hits.at(i).at >= at; i-- {
		if x := g.hits.at(i); x.at == at { // of several at one instant any will do: they expire together
			back := min(x.cost, d.cost)
			x.cost -= back
			g.used -= back
			d.cost -= back
		}
	}
	return nil
}

// Reset implements [Resetter].
func (s *SlidingLog) Reset(_ context.Context, r *Request) error {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil {
		return err
	}
	h, err := s.hold(&d, false)
	if err != nil || h.entry == nil {
		return err
	}
	drop(s.l.logs, h)
	return nil
}

// Seed implements [Seeder]: what is missing is logged as one hit, now.
func (s *SlidingLog) Seed(_ context.Context, r *Request, counted *Result) error {
	if !s.l.clock.ahead(counted.ExpiresAt) {
		return s.l.sound(new(demand), r)
	}
	to := int64(min(counted.TotalRequests, math.MaxInt64))
	return s.add(r, func(_ *demand, used int64) int64 { return to - used })
}

// Charge implements [Charger].
func (s *SlidingLog) Charge(_ context.Context, r *Request) error {
	return s.add(r, func(d *demand, _ int64) int64 { return d.cost })
}

func (s *SlidingLog) add(r *Request, more func(d *demand, used int64) int64) error {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil {
		return err
	}
	h, err := s.hold(&d, true)
	if err != nil {
		return err
	}
	defer h.state.mu.Unlock()
	if n := more(&d, h.state.used); n > 0 {
		h.state.add(h.now, n, r.Meta)
	}
	s.l.logs.lower(h.place, h.state.end()) // whatever was added: hold may have made it
	return nil
}
