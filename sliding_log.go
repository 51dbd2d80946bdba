package weir

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/ring"
)

// SlidingLog is the exact rolling window: it keeps the time of every admitted hit of the last
// Duration. Make one with [Limiter.SlidingLog].
type SlidingLog struct{ locked[hitLog] }

// SlidingLog returns the sliding window log as a Strategy: in any span of one Duration at most
// Limit are admitted, and a request is denied only if it would break that. A hit admitted at t
// counts until just before t+Duration.
//
// It keeps 16 bytes for each hit that counts, and 16 and the Meta more in a caller's log that has
// one; a denied request leaves nothing behind. All logs, tiers and queues of a Limiter together
// hold at most 1 MiB and 256 bytes for each of MaxBuckets: over that a hit fails with [ErrFull],
// also of a known caller. A decision takes the caller's lock, and drops about a hit for each added.
//
// It is the sorted set strategy of the Go limiter over Redis, in process.
func (l *Limiter) SlidingLog() *SlidingLog {
	return &SlidingLog{newLocked[hitLog](l, &logs{}, &planned[hitLog]{l.logs(), ""})}
}

// logs is the arithmetic of a SlidingLog.
type logs struct{}

// hitLog is one caller's hits.
type hitLog struct {
	used  int64 // the sum of the costs in hits
	hits  ring.Ring[hit]
	metas ring.Ring[string] // beside hits, from the first hit that had a Meta until the log is empty
	bytes int64             // in metas
}

type hit struct{ at, cost int64 }

const hitBytes, stringBytes = 16, 16

func (g *hitLog) end(key stateKey) int64 {
	switch {
	case g.hits.Len() == 0:
		return math.MinInt64
	case key.plan == listPlan:
		return arith.Add(g.hits.At(0).at, key.scale*msec)
	}
	return arith.Add(g.hits.Newest().at, key.scale*msec)
}

func (g *hitLog) size() int64 {
	return int64(g.hits.Cap()*hitBytes+g.metas.Cap()*stringBytes) + g.bytes
}

func (g *hitLog) growth(meta string) int64 {
	n := int64(g.hits.Growth()*hitBytes + len(meta))
	if meta != "" || g.metas.Len() > 0 {
		n += int64((g.hits.Cap() + g.hits.Growth() - g.metas.Cap()) * stringBytes)
	}
	return n
}

// expired returns how many hits no longer count at now, and their cost.
func (g *hitLog) expired(scale, now int64) (n int, cost int64) {
	for n < g.hits.Len() && now >= arith.Add(g.hits.At(n).at, scale*msec) {
		cost += g.hits.At(n).cost
		n++
	}
	return n, cost
}

func (a *logs) prepare(p params) (params, error) { return p, nil }

func (a *logs) advance(g *hitLog, p params, now int64) {
	n, expired := g.expired(p.scale, now)
	g.used -= expired
	for range n {
		g.remove(0)
	}
	if g.hits.Len() == 0 {
		g.metas = ring.Ring[string]{}
	}
}

func (a *logs) decide(g *hitLog, p params, now int64) verdict {
	first, expired := g.expired(p.scale, now)
	used := g.used - expired
	v := p.verdict(used, arith.Add(now, p.scale*msec))
	if v.state == Deny && !p.exceedsLimit() {
		v.at = g.retry(first, used-(p.limit-p.cost), p.scale)
	}
	return v
}

// retry returns the instant at which hits of the cost excess no longer count.
func (g *hitLog) retry(first int, excess, scale int64) int64 {
	for ; excess > g.hits.At(first).cost; first++ {
		excess -= g.hits.At(first).cost
	}
	return arith.Add(g.hits.At(first).at, scale*msec)
}

func (a *logs) admit(g *hitLog, _ params, now, cost int64, meta string) {
	cost = min(cost, math.MaxInt64-g.used) // what is added here is what is subtracted later
	g.used += cost
	if meta != "" && g.metas.Len() == 0 {
		g.metas.Resize(g.hits.Cap())
		for range g.hits.Len() {
			g.metas.Push("")
		}
	}
	g.hits.Push(hit{now, cost})
	if meta != "" || g.metas.Len() > 0 {
		g.metas.Push(strings.Clone(meta))
		g.bytes += int64(len(meta))
	}
}

// remove removes the i-th oldest hit, whose cost is no longer in used.
func (g *hitLog) remove(i int) {
	g.hits.Remove(i)
	if g.metas.Len() > 0 {
		g.bytes -= int64(len(*g.metas.At(i)))
		g.metas.Remove(i)
	}
}

// refund takes the cost from the hits at the instant of its admission, which all expire together.
func (a *logs) refund(g *hitLog, p params, _, expires int64, _ string) {
	at := arith.Sub(expires, p.scale*msec)
	for i := g.hits.Len() - 1; i >= 0 && p.cost > 0 && g.hits.At(i).at >= at; i-- {
		h := g.hits.At(i)
		if h.at != at {
			continue
		}
		back := min(h.cost, p.cost)
		h.cost -= back
		g.used -= back
		p.cost -= back
		if h.cost == 0 {
			g.remove(i)
		}
	}
}

// raise logs what is missing as one hit.
func (a *logs) raise(g *hitLog, p params, now, _, total int64, meta string) {
	if total > g.used {
		a.admit(g, p, now, total-g.used, meta)
	}
}

// Entry is an admitted request in a log.
type Entry struct {
	At   time.Time
	Cost uint64
	Meta string
}

// Entries lists the admitted requests of r.Key in the last r.Duration, newest last: which users are
// behind this address? It counts nothing, and takes time linear in their number.
func (s *SlidingLog) Entries(_ context.Context, r *Request) ([]Entry, error) {
	p, h, err := s.find(r)
	if err != nil {
		return nil, err
	}
	defer s.store.unlock(h.handle, seen)
	first, _ := h.state.expired(p.scale, h.now)
	return h.state.entries(&s.l.clock, first), nil
}

// meta returns the Meta of the i-th oldest hit.
func (g *hitLog) meta(i int) string {
	if g.metas.Len() == 0 {
		return ""
	}
	return *g.metas.At(i)
}

// entries lists the hits from the first on.
func (g *hitLog) entries(c *clock, first int) (entries []Entry) {
	for i := first; i < g.hits.Len(); i++ {
		e := Entry{At: c.time(g.hits.At(i).at), Cost: uint64(g.hits.At(i).cost), Meta: g.meta(i)}
		if e.Cost > 0 { // else it was given back
			entries = append(entries, e)
		}
	}
	return entries
}
