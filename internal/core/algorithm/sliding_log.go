package algorithm

import (
	"math"
	"strings"

	"github.com/weirgo/weir/internal/core/arith"
)

// Log is one caller's admitted hits, the oldest first.
type Log struct {
	used  int64 // the sum of the costs in hits
	hits  Ring[Hit]
	metas Ring[string] // beside hits, from the first hit that had a meta until the log is empty
	bytes int64        // in metas
}

// Hit is an admitted cost.
type Hit struct{ At, Cost int64 }

const hitBytes, stringBytes = 16, 16

// Used returns the cost that a log holds, expired or not.
func (g *Log) Used() int64 { return g.used }

// Latest returns the instant of the newest hit.
func (g *Log) Latest(int64) int64 { return g.hits.Newest().At }

// Restore makes g the same as saved.
func (g *Log) Restore(saved *Log) { *g = *saved }

// Len returns how many hits a log holds.
func (g *Log) Len() int { return g.hits.Len() }

// Hit returns the i-th oldest hit and its meta.
func (g *Log) Hit(i int) (Hit, string) { return *g.hits.At(i), g.meta(i) }

func (g *Log) meta(i int) string {
	if g.metas.Len() == 0 {
		return ""
	}
	return *g.metas.At(i)
}

// Bytes returns how many bytes a log takes beside itself, and Growth how many more it may take with
// a hit with meta.
func (g *Log) Bytes() int64 {
	return int64(g.hits.Cap()*hitBytes+g.metas.Cap()*stringBytes) + g.bytes
}

// Growth is described at Bytes.
func (g *Log) Growth(meta string) int64 {
	n := int64(g.hits.Growth()*hitBytes + len(meta))
	if meta != "" || g.metas.Len() > 0 {
		n += int64((g.hits.Cap() + g.hits.Growth() - g.metas.Cap()) * stringBytes)
	}
	return n
}

// Expires returns when no hit counts any more; Never if there is none.
func (g *Log) Expires(scaleMs int64) int64 {
	if g.hits.Len() == 0 {
		return Never
	}
	return arith.Add(g.hits.Newest().At, scaleMs*msec)
}

// Add adds a hit.
func (g *Log) Add(now, cost int64, meta string) {
	cost = min(cost, math.MaxInt64-g.used) // what is added here is what is subtracted later
	g.used += cost
	if meta != "" && g.metas.Len() == 0 {
		g.metas.Resize(g.hits.Cap())
		for range g.hits.Len() {
			g.metas.Push("")
		}
	}
	g.hits.Push(Hit{now, cost})
	if meta != "" || g.metas.Len() > 0 {
		g.metas.Push(strings.Clone(meta))
		g.bytes += int64(len(meta))
	}
}

// remove removes the i-th oldest hit, whose cost is no longer in used.
func (g *Log) remove(i int) {
	g.hits.Remove(i)
	if g.metas.Len() > 0 {
		g.bytes -= int64(len(*g.metas.At(i)))
		g.metas.Remove(i)
	}
}

// take takes up to cost from the i-th oldest hit, and returns what of cost is left.
func (g *Log) take(i int, cost int64) int64 {
	h := g.hits.At(i)
	back := min(h.Cost, cost)
	h.Cost -= back
	g.used -= back
	return cost - back
}

// SlidingLog is the arithmetic of the sliding window log: a hit counts until just before one period
// after it.
type SlidingLog struct{}

// Expired returns how many hits no longer count at now, and their cost.
func (g *Log) Expired(scaleMs, now int64) (n int, cost int64) {
	for n < g.hits.Len() && now >= arith.Add(g.hits.At(n).At, scaleMs*msec) {
		cost += g.hits.At(n).Cost
		n++
	}
	return n, cost
}

// Advance drops what no longer counts at now.
func (SlidingLog) Advance(g *Log, p Params, now int64) {
	n, expired := g.Expired(p.Scale, now)
	g.used -= expired
	for range n {
		g.remove(0)
	}
	if g.hits.Len() == 0 {
		g.metas = Ring[string]{}
	}
}

// Decide returns the verdict on p at now.
func (SlidingLog) Decide(g *Log, p Params, now int64) Verdict {
	first, expired := g.Expired(p.Scale, now)
	used := g.used - expired
	v := p.Verdict(used, arith.Add(now, p.Scale*msec))
	if v.Allowed || v.At == Never {
		return v
	}
	excess := used - (p.Limit - p.Cost)
	for ; excess > g.hits.At(first).Cost; first++ {
		excess -= g.hits.At(first).Cost
	}
	v.At = arith.Add(g.hits.At(first).At, p.Scale*msec)
	return v
}

// Full returns when nothing counts if nothing more is admitted: now, or when the newest hit
// expires.
func (SlidingLog) Full(g *Log, p Params, now int64) int64 { return max(g.Expires(p.Scale), now) }

// Admit counts p.Cost at now, whether it fits or not.
func (SlidingLog) Admit(g *Log, p Params, now int64, meta string) { g.Add(now, p.Cost, meta) }

// Refund takes p.Cost from the hits at the instant of its admission, which all expire together.
func (SlidingLog) Refund(g *Log, p Params, _ int64, t Taken, _ string) {
	at := arith.Sub(t.Expires, p.Scale*msec)
	for i := g.hits.Len() - 1; i >= 0 && g.hits.At(i).At >= at; i-- {
		if g.hits.At(i).At != at {
			continue
		}
		p.Cost = g.take(i, p.Cost)
		if g.hits.At(i).Cost == 0 {
			g.remove(i)
		}
	}
}

// Raise adds what is missing to total as one hit.
func (SlidingLog) Raise(g *Log, _ Params, now, _, total int64, meta string) {
	if total > g.used {
		g.Add(now, total-g.used, meta)
	}
}
