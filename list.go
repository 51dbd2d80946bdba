package weir

import (
	"context"

	"github.com/weirgo/weir/internal/arith"
)

// List is Counter with an entry for each admitted request in place of a number. Make one with
// [Limiter.List].
type List struct{ locked[hitLog] }

// List returns the counter of [Limiter.Counter] as a Strategy that also keeps each admitted request
// of the period, with its Meta. It takes the memory of [Limiter.SlidingLog], and is bounded as that
// is; a period that has ended is freed with the caller's next hit, or swept.
//
// It is the list of the Redis documentation's rate limiter (RPUSH and LLEN), in process;
// redislimit's List gives the same Results and entries.
func (l *Limiter) List() *List {
	return &List{newLocked[hitLog](l, &lists{}, &planned[hitLog]{l.logs(), listPlan})}
}

const listPlan = "list"

// lists is the arithmetic of a List. The first hit is the start of the period, and stays while that
// runs, with a cost of 0 if need be.
type lists struct{ logs }

func (a *lists) over(g *hitLog, p params, now int64) bool {
	return g.hits.Len() == 0 || now >= arith.Add(g.hits.At(0).at, p.scale*msec)
}

func (a *lists) advance(g *hitLog, p params, now int64) {
	if a.over(g, p, now) {
		*g = hitLog{}
	}
}

func (a *lists) decide(g *hitLog, p params, now int64) verdict {
	start, used := now, int64(0)
	if !a.over(g, p, now) {
		start, used = g.hits.At(0).at, g.used
	}
	return p.verdict(used, arith.Add(start, p.scale*msec))
}

// maxRefunded is how many hits, the newest, a refund looks at.
const maxRefunded = 1000

// refund takes the cost from the newest hits that have meta, then from the newest of the others.
func (a *lists) refund(g *hitLog, p params, _, expires int64, meta string) {
	if g.hits.Len() == 0 || expires != arith.Add(g.hits.At(0).at, p.scale*msec) {
		return
	}
	oldest := max(0, g.hits.Len()-maxRefunded)
	for _, same := range [...]bool{true, false} {
		for i := g.hits.Len() - 1; i >= oldest && p.cost > 0; i-- {
			h := g.hits.At(i)
			if (g.meta(i) == meta) != same {
				continue
			}
			back := min(h.cost, p.cost)
			h.cost -= back
			g.used -= back
			p.cost -= back
			if h.cost == 0 && i > 0 {
				g.remove(i)
			}
		}
	}
}

// raise has a period that began elsewhere go on here, and end when it would have.
func (a *lists) raise(g *hitLog, p params, now, expires, total int64, meta string) {
	if g.hits.Len() == 0 {
		now = min(now, arith.Sub(expires, p.scale*msec))
	}
	a.logs.raise(g, p, now, expires, total, meta)
}

// Entries lists the admitted requests of r.Key in its period, newest last. It counts nothing, and
// takes time linear in their number.
func (s *List) Entries(_ context.Context, r *Request) ([]Entry, error) {
	p, h, err := s.find(r)
	if err != nil {
		return nil, err
	}
	defer s.store.unlock(h.handle, seen)
	if (&lists{}).over(h.state, p, h.now) {
		return nil, nil
	}
	return h.state.entries(&s.l.clock, 0), nil
}
