package weir

import (
	"cmp"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/states"
)

// FixedWindow is CheckRate as a [Strategy], with its counts. Make one with [Limiter.FixedWindow].
//
// In a window aligned to the Unix epoch exactly Limit is admitted; in a span of one Duration that
// lies across two windows up to twice that. A decision on a key that has a bucket takes no lock.
//
// Each window needs a new bucket. So while made-up keys fill the table, known ones get [ErrFull]
// too from the next window on. The other strategies keep a caller's bucket until its count has
// expired.
type FixedWindow struct{ windowStrategy }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest of them.
func (l *Limiter) FixedWindow() *FixedWindow {
	return (&FixedWindow{windowStrategy{slotStrategy: newSlotStrategy(l, fixedKind)}}).described()
}

// described sets what f is.
func (f *FixedWindow) described() *FixedWindow {
	f.describe(f, About{Name: "fixed window", Lapses: LapsesWithWindow})
	return f
}

// Limit returns the limit of n in each window of d. It panics where [NewLimit] fails.
func (f *FixedWindow) Limit(n uint64, d time.Duration) *Limit { return mustLimit(f, n, d) }

func (f *FixedWindow) bind(m *Limit) (Counter, error) {
	name := m.seriesName()
	name.Length = m.d.Milliseconds()
	s, err := newLimitedWindows(f.l, name, nil, m.n)
	s.numbersOf = Tier{m.n, m.d}
	return (&FixedWindow{s}).described(), err
}

// SlidingWindow is the sliding window counter: the current window's count and the previous one's,
// weighted by how much of it the last Duration covers. Make one with [Limiter.SlidingWindow].
type SlidingWindow struct{ slotStrategy }

// SlidingWindow returns the sliding window counter as a Strategy. It assumes that the hits of the
// previous window were evenly spread, and rounds up. Its instants are whole milliseconds.
//
// In any span of one Duration less than twice Limit is admitted: 1.99 times if all of Limit falls
// on the end of a window and the next one is filled as it frees up. On arrivals at random around
// the limit a span holds up to 1.1 times Limit, and 5 % of the decisions admit a request that the
// exact log would deny; on random bursts it is 1.7 times and 6 %. On 10,000 real requests of 1,753
// addresses, at 20 an hour, 0.02 % were admitted wrongly and 6.5 % denied wrongly, with at most
// 1.05 times the limit in one hour. It denies too much where hits are early in a window, and admits
// too much where they are late. Where that matters take SlidingLog.
//
// A caller has one bucket, from window to window. A decision on a key that has a bucket takes no
// lock, but for the first admission of a window. Denied hits are not counted, so a caller who
// hammers recovers.
//
// The algorithm is the one Cloudflare described in 2017 ("How we built rate limiting capable of
// scaling to millions of domains"); it differs in rounding up, in integers throughout, and in
// reporting the exact instant to retry at.
func (l *Limiter) SlidingWindow() *SlidingWindow {
	return (&SlidingWindow{newSlotStrategy(l, slidingKind)}).described()
}

// described sets what s is.
func (s *SlidingWindow) described() *SlidingWindow {
	s.describe(s, About{Name: "sliding window", Lapses: LapsesWithWindows})
	return s
}

// Limit returns the limit of n in d. It panics where [NewLimit] fails.
func (s *SlidingWindow) Limit(n uint64, d time.Duration) *Limit { return mustLimit(s, n, d) }

func (s *SlidingWindow) bind(m *Limit) (Counter, error) {
	of := *s
	err := of.bindTo(m)
	return of.described(), err
}

// TokenBucket is the token bucket, kept as the generic cell rate algorithm (GCRA) does: one instant
// per caller, the theoretical arrival time, at which the bucket is full again. Make one with
// [Limiter.TokenBucket].
type TokenBucket struct {
	slotStrategy
	burst uint64
}

// TokenBucket returns a token bucket as a Strategy: Limit tokens flow in evenly in each Duration,
// and at most burst are kept; 0 means Limit. In any span of one Duration at most burst+Limit pass;
// who [Wait] lets through may be up to 100 ms late, as by every strategy.
//
// The interval between two tokens is Duration/Limit rounded up to a whole nanosecond, so never more
// than Limit flow in. A decision on a key that has a bucket takes no lock, but for one admission in
// 78 hours, the first decision at another Limit, and with Config.Now the first admission at an
// instant. A clock that goes back adds no tokens: with Config.Now the key stays at the instant of
// its last admission. A burst that takes longer than 146 years to flow in is [ErrLimit].
//
// What was used stays used, in tokens, when Limit changes: a higher one helps at once, and a lower
// one gives nothing away. From the first Run at another Limit on, also if it is denied, tokens flow
// in at the new interval; each change takes less than a nanosecond's tokens. With a burst of 0 more
// may be used than a lower Limit, and TotalRequests says so. Requests of several plans may share a
// key. A Peek changes no interval.
//
// The algorithm is that of ATM Forum TM 4.0 (1996).
func (l *Limiter) TokenBucket(burst uint64) *TokenBucket {
	a := &algorithm.TokenBucket{Burst: clampCost(burst), ClockSteps: l.clock.ByHand()}
	of := reader{l: l, most: math.MaxInt64, preparer: a}
	return (&TokenBucket{slotStrategy{of, l.callers, tokenKind, a}, burst}).described()
}

// described sets what b is.
func (b *TokenBucket) described() *TokenBucket {
	b.describe(b, About{Name: "token bucket", Lapses: LapsesByToken, Burst: b.burst})
	return b
}

// Limit returns the limit of n in d, at most burst at once. It panics where [NewLimit] fails.
func (b *TokenBucket) Limit(n uint64, d time.Duration) *Limit { return mustLimit(b, n, d) }

func (b *TokenBucket) bind(m *Limit) (Counter, error) {
	of := *b
	of.keepAcrossDurations(m)
	err := of.bindTo(m, cmp.Or(b.burst, m.n))
	return of.described(), err
}

// PeriodCounter counts in a period of one Duration that begins with the caller's first hit. Make
// one with [Limiter.Counter].
type PeriodCounter struct{ slotStrategy }

// Counter returns the single counter as a Strategy: the first hit of a caller begins a period of
// one Duration, in which Limit are admitted; the first hit after it begins the next. A denied
// request begins none. In a span of one Duration that lies across two periods up to twice Limit is
// admitted, as by FixedWindow, but the periods of different callers do not all end at one instant.
//
// A caller has one bucket, from period to period. A decision on a key that has a bucket takes no
// lock, but for the hit that begins a period. What is given back stays in its period, which does
// not end sooner for it.
//
// It is the counter of the Go limiter over Redis (INCR and EXPIRE), in process; redislimit's
// Counter gives the same Results. It differs from that original in that the period begins with the
// first hit, not the second, and that a denial names the end of the period that is now.
func (l *Limiter) Counter() *PeriodCounter {
	return (&PeriodCounter{newSlotStrategy(l, counterKind)}).described()
}

// described sets what c is.
func (c *PeriodCounter) described() *PeriodCounter {
	c.describe(c, About{Name: "counter", Lapses: LapsesAtOnce})
	return c
}

// Limit returns the limit of n in d. It panics where [NewLimit] fails.
func (c *PeriodCounter) Limit(n uint64, d time.Duration) *Limit { return mustLimit(c, n, d) }

func (c *PeriodCounter) bind(m *Limit) (Counter, error) {
	of := *c
	err := of.bindTo(m)
	return of.described(), err
}

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
			return hitsOf(l, g, first)
		},
	}}).described()
}

// hitsOf lists the hits from the first on.
func hitsOf(l *Limiter, g *algorithm.Log, first int) (hits []Hit) {
	for i := first; i < g.Len(); i++ {
		h, meta := g.Hit(i)
		if h.Cost > 0 { // else it was given back
			hits = append(hits, Hit{At: l.clock.Time(h.At), Cost: uint64(h.Cost), Meta: meta})
		}
	}
	return hits
}

// writeLog writes a log, and writeList a list.
func writeLog(e *encoder, g *algorithm.Log) {
	e.Int(int64(g.Len()))
	for i := range g.Len() {
		h, meta := g.Hit(i)
		e.Int(h.At)
		e.Int(h.Cost)
		e.Text(meta)
	}
}

// readHits reads what writeLog has written.
func readHits(d *decoder, g *algorithm.Log) {
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
			return hitsOf(l, &g.Log, 0)
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

func writeList(e *encoder, g *algorithm.Listed) { writeLog(e, &g.Log) }

// readLog reads a log, or a list.
func readLog(d *decoder) error {
	id, scale, plan := d.key()
	switch key := (states.Key{ID: id, Scale: scale, Plan: plan}); plan {
	case "":
		g := new(algorithm.Log)
		readHits(d, g)
		return restoreState(d, &d.l.SlidingLog().stateStrategy, key, g)
	case listPlan:
		g := new(algorithm.Listed)
		readHits(d, &g.Log)
		return restoreState(d, &d.l.List().stateStrategy, key, g)
	}
	d.Bad = true
	return nil
}
