package weir

import (
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/states"
)

// List is Counter with an entry for each admitted request in place of a number. Make one with
// [Limiter.List].
type List struct {
	stateStrategy[*algorithm.Listed]
}

// List returns the counter of [Limiter.Counter] as a Strategy that also keeps each admitted request
// of the period, with its Meta. It takes the memory of [Limiter.SlidingLog], and is bounded as that
// is; a period that has ended is freed with the caller's next hit, or swept. A plain Refund takes
// from the newest hits, of the last thousand, that have the Meta of the request, then from the
// newest others; a Reservation of package limits takes from its own.
//
// It is the list of the Redis documentation's rate limiter (RPUSH and LLEN), in process;
// redislimit's List gives the same Results and Hits.
func (l *Limiter) List() *List {
	return (&List{stateStrategy[*algorithm.Listed]{
		reader: reader{l: l, most: math.MaxInt64}, algorithm: algorithm.List{}, table: &l.lists,
		plan: listPlan, list: func(g *algorithm.Listed, p params, now int64) []Hit {
			if g.Over(p.Scale, now) {
				return nil
			}
			return l.hitsOf(&g.Log, 0)
		},
	}}).described()
}

// listPlan tells the record of a list from that of a log.
const listPlan = "list"

// described sets what s is.
func (s *List) described() *List {
	s.describe(s, About{Name: "list", Lapses: LapsesAtOnce, Verbs: VerbsOf(OpHits)})
	return s
}

// Limit returns the limit of n in d. It panics where [NewLimit] fails.
func (s *List) Limit(n uint64, d time.Duration) *Limit { return mustLimit(s, n, d) }

func (s *List) bind(m *Limit) (Counter, error) {
	of := *s
	err := of.bindTo(m)
	return of.described(), err
}

func (e *encoder) list(g *algorithm.Listed) { e.log(&g.Log) }

// log reads a log, or a list.
func (d *decoder) log() error {
	id, scale, plan := d.key()
	switch key := (states.Key{ID: id, Scale: scale, Plan: plan}); plan {
	case "":
		g := new(algorithm.Log)
		d.hits(g)
		return restoreState(d, &d.l.SlidingLog().stateStrategy, key, g)
	case listPlan:
		g := new(algorithm.Listed)
		d.hits(&g.Log)
		return restoreState(d, &d.l.List().stateStrategy, key, g)
	}
	d.Bad = true
	return nil
}
