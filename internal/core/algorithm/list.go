package algorithm

import "github.com/weirgo/weir/internal/core/arith"

// Listed is the log of one period: the first hit is its start.
type Listed struct{ Log }

// Restore makes g the same as saved.
func (g *Listed) Restore(saved *Listed) { *g = *saved }

// Expires returns when the period ends; Never if there is none.
func (g *Listed) Expires(scaleMs int64) int64 {
	if g.hits.Len() == 0 {
		return Never
	}
	return arith.Add(g.hits.At(0).At, scaleMs*msec)
}

// List is the arithmetic of a Counter that keeps its hits: the first one stays while the period
// runs, with a cost of 0 if need be.
type List struct{}

// Over reports whether no period runs at now.
func (g *Listed) Over(scaleMs, now int64) bool {
	return now >= g.Expires(scaleMs)
}

// Advance drops a period that is over at now.
func (List) Advance(g *Listed, p Params, now int64) {
	if g.Over(p.Scale, now) {
		*g = Listed{}
	}
}

// Decide returns the verdict on p at now.
func (List) Decide(g *Listed, p Params, now int64) Verdict {
	if g.Over(p.Scale, now) {
		return p.Verdict(0, arith.Add(now, p.Scale*msec))
	}
	return p.Verdict(g.used, g.Expires(p.Scale))
}

// Full returns when nothing counts if nothing more is admitted: now, or the end of the period.
func (List) Full(g *Listed, p Params, now int64) int64 {
	if g.used == 0 {
		return now
	}
	return max(g.Expires(p.Scale), now)
}

// Admit counts p.Cost at now, whether it fits or not.
func (List) Admit(g *Listed, p Params, now int64, meta string) { g.Add(now, p.Cost, meta) }

// maxRefunded is how many hits a refund looks at: the newest, or those from the admission on.
const maxRefunded = 1000

// Refund takes p.Cost from the hit of its admission, found by its instant and its meta. If the
// instant is not known, it takes it from the newest hits that have the meta, then from the newest
// of the others, of the last thousand.
func (List) Refund(g *Listed, p Params, _ int64, t Taken, meta string) {
	if t.Expires != g.Expires(p.Scale) {
		return
	}
	oldest := max(0, g.hits.Len()-maxRefunded)
	passes := [...]bool{true, false}
	for _, same := range passes {
		for i := g.hits.Len() - 1; i >= 0 && p.Cost > 0; i-- {
			h := g.hits.At(i)
			if t.At == Never && i < oldest || h.At < t.At {
				break
			}
			if t.At != Never && h.At != t.At || (g.meta(i) == meta) != same {
				continue
			}
			p.Cost = g.take(i, p.Cost)
			if g.hits.At(i).Cost == 0 && i > 0 {
				g.remove(i)
			}
		}
	}
}

// Raise adds what is missing to total as one hit. A period that began elsewhere goes on here, and
// ends at expires.
func (List) Raise(g *Listed, p Params, now, expires, total int64, meta string) {
	if g.hits.Len() == 0 {
		now = min(now, arith.Sub(expires, p.Scale*msec))
	}
	SlidingLog{}.Raise(&g.Log, p, now, expires, total, meta)
}
