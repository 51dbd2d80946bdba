package weir

import (
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
)

// SlidingLog is the exact rolling window: it keeps the time of every admitted hit of the last
// Duration. Make one with [Limiter.SlidingLog].
type SlidingLog struct{ stateStrategy[*algorithm.Log] }

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
	return (&SlidingLog{stateStrategy[*algorithm.Log]{
		reader: reader{l: l, most: math.MaxInt64}, algorithm: algorithm.SlidingLog{}, table: &l.logs,
		list: func(g *algorithm.Log, p params, now int64) []Hit {
			first, _ := g.Expired(p.Scale, now)
			return l.hitsOf(g, first)
		},
	}}).described()
}

// hitsOf lists the hits from the first on.
func (l *Limiter) hitsOf(g *algorithm.Log, first int) (hits []Hit) {
	for i := first; i < g.Len(); i++ {
		h, meta := g.Hit(i)
		if h.Cost > 0 { // else it was given back
			hits = append(hits, Hit{At: l.clock.Time(h.At), Cost: uint64(h.Cost), Meta: meta})
		}
	}
	return hits
}

// log writes a log; list, in list.go, that of a list.
func (e *encoder) log(g *algorithm.Log) {
	e.Int(int64(g.Len()))
	for i := range g.Len() {
		h, meta := g.Hit(i)
		e.Int(h.At)
		e.Int(h.Cost)
		e.Text(meta)
	}
}

// hits reads what log has written.
func (d *decoder) hits(g *algorithm.Log) {
	last := int64(math.MinInt64)
	for n := d.Int(0, math.MaxInt64); n > 0 && !d.Bad; n-- {
		last = d.Int(last, math.MaxInt64)
		g.Add(last, d.Int(0, math.MaxInt64-g.Used()), d.Text(0))
	}
}

// described sets what s is.
func (s *SlidingLog) described() *SlidingLog {
	s.describe(s, About{Name: "sliding log", Verbs: VerbsOf(OpHits)})
	return s
}

// Limit returns the limit of n in d. It panics where [NewLimit] fails.
func (s *SlidingLog) Limit(n uint64, d time.Duration) *Limit { return mustLimit(s, n, d) }

func (s *SlidingLog) bind(m *Limit) (Counter, error) {
	of := *s
	err := of.bindTo(m)
	return of.described(), err
}
