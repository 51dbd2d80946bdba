package weir

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// SlidingWindow is the sliding window counter: the previous window's count, weighted by the part of it that the last
// Duration still covers, plus the current one's. Make one with [Limiter.SlidingWindow].
type SlidingWindow struct {
	l    *Limiter
	last [8]atomic.Pointer[window] // of the last decision, by duration; of several that share a slot the first stays
}

// SlidingWindow returns the sliding window counter as a Strategy. It takes what the previous window admitted to have come
// evenly spread, and rounds up. Its instants are whole milliseconds.
//
// In any span of one Duration less than twice Limit is admitted; it comes near only if all of Limit falls on the end of a
// window and the next one is filled as it frees up (measured: 1.99). On arrivals at random around the limit a span holds
// up to 1.1 times Limit, and 5 % of the decisions admit what the exact log would not; on random bursts it is 1.7 times and
// 6 %. On 10,000 real requests of 1,753 addresses, at 20 an hour, 0.02 % were admitted wrongly and 6.5 % denied wrongly, with
// at most 1.05 times the limit in one hour. It denies more than it should where hits are early in a window, admits more
// where they are late; over time both even out. Where that matters take SlidingLog.
//
// A decision is a look-up, a multiplication and a compare-and-swap; it takes no lock. Denied hits are not counted, so
// a caller who hammers recovers.
//
// The algorithm is the one Cloudflare described in 2017 ("How we built rate limiting capable of scaling to millions of
// domains"); it differs in rounding up, in integers throughout, and in telling the exact instant to retry at.
func (l *Limiter) SlidingWindow() *SlidingWindow { return &SlidingWindow{l: l} }

// slide is one decision: pure arithmetic on two adjacent windows.
type slide struct {
	prev, cur   int64 // admitted cost in the previous and the current window
	left, scale int64 // ms: what is left of the current window, and its length; 0 < left <= scale
}

// used returns the weighted cost, rounded up: the estimate is never below the weight it stands for.
func (s slide) used() int64 {
	hi, lo := bits.Mul64(uint64(s.prev), uint64(s.left))
	quo, rem := bits.Div64(hi, lo, uint64(s.scale)) // prev*left/scale <= prev: it fits
	if rem > 0 {
		quo++
	}
	return addSat(int64(quo), s.cur)
}

// retry returns when a demand of cost that is denied now, and is no more than limit, will pass if nothing else is
// admitted: in milliseconds from the start of the current window.
func (s slide) retry(cost, limit int64) int64 {
	switch room := limit - cost - s.cur; {
	case room > 0:
		return s.scale - share(room, s.scale, s.prev) // in this window, or at its very end
	case room == 0:
		return s.scale
	}
	return 2*s.scale - share(limit-cost, s.scale, s.cur) // the current window will be the previous one
}

// share returns part*scale/whole, rounded down. part < whole.
func share(part, scale, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(part), uint64(scale))
	quo, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(quo)
}

// at returns the slide of an id at now in w, of which prev was admitted before and cur until now.
func (w *window) at(now, prev, cur int64) slide {
	into, _ := floorDiv(now-w.start, msec)
	scale := scaleOf(w.scale)
	return slide{prev, cur, scale - into, scale}
}

// Run implements [Strategy]. Its errors are those of [Limiter.CheckRate].
func (s *SlidingWindow) Run(ctx context.Context, r *Request) (*Result, error) {
	res, err := s.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (s *SlidingWindow) Decide(_ context.Context, r *Request) (res Result, err error) {
	res.State, res.TotalRequests, res.ExpiresAt, err = s.decide(r)
	return
}

// decide returns the parts of a Result, as those of a token bucket are.
//
// The previous window's bucket is sealed before its count is used, so that the compare-and-swap on the current bucket
// decides on figures that still hold.
func (s *SlidingWindow) decide(r *Request) (State, uint64, time.Time, error) {
	l := s.l
	var d demand
	last := &s.last[uint64(r.Duration)*0x9e3779b97f4a7c15>>61]
	w := last.Load()
	if w == nil || !d.readAs(r, w.duration, scaleOf(w.scale)) || l.closed.Load() {
		if err := l.sound(&d, r); err != nil {
			return Deny, 0, time.Time{}, err
		}
		w = s.recent(d.scale)
		last.CompareAndSwap(nil, w)
	}
	for since := int64(math.MinInt64); ; {
		p := l.buckets.place(d.id, w.salt)
		cur := l.buckets.find(p, d.id, w.period)
		now := max(l.clock.read(), since)
		if !w.holds(now) {
			over := w
			w = l.window(now, w.scale)
			last.CompareAndSwap(over, w)
			continue
		}
		prior, count := int64(-1), int64(0)
		if cur != nil {
			prior = cur.state.prior()
		}
		if prior < 0 {
			var ok bool
			if prior, ok = s.before(&d, p, w, since, cur); !ok {
				continue
			}
		}
		if cur != nil {
			count = cur.state.count.Load()
		}
		if count <= sealed {
			since = w.end // the next window has begun, whatever the clock says
			continue
		}
		used := max(0, count)
		if prior > 0 {
			used = w.at(now, prior, used).used()
		}
		if d.never() || used > d.limit-d.cost {
			s.tally(p, cur)
			return Deny, uint64(used), s.retry(&d, w, w.at(now, prior, max(0, count))), nil
		}
		if cur == nil || count < 0 {
			if _, err := l.live(d.id, w, since); err != nil {
				return Deny, 0, time.Time{}, err
			}
			continue
		}
		if cur.state.count.CompareAndSwap(count, count+d.cost) {
			cur.state.touch(w.stamp(now))
			if d.cost > 1 {
				l.surplus.Add(d.cost - 1)
			}
			return Allow, uint64(used + d.cost), w.expires, nil
		}
	}
}

// before returns what the window before w admitted, sealed, and has cur learn it. It reports false if it cannot tell:
// while w runs the bucket before it is not swept, and so one that is not found was not there; but w has passed.
func (s *SlidingWindow) before(d *demand, p place, w *window, since int64, cur *entry[bucket]) (prior int64, ok bool) {
	if prev := s.previous(d.id, p, w); prev != nil {
		prior = prev.state.seal()
	} else if now := max(s.l.clock.read(), since); !w.holds(now) {
		return 0, false
	}
	if cur != nil {
		cur.state.learn(prior)
	}
	return prior, true
}

// recent returns the window of scale ms that a decision was last made in, or the one that is now.
func (s *SlidingWindow) recent(ms int64) *window {
	if w := s.l.windows.last(sliding.scale(ms)); w != nil {
		return w
	}
	return s.l.window(s.l.clock.read(), sliding.scale(ms))
}

// find returns the buckets of id that count in w; either may be nil.
func (s *SlidingWindow) find(id string, w *window) (prev, cur *entry[bucket]) {
	p := s.l.buckets.place(id, w.salt)
	return s.previous(id, p, w), s.l.buckets.find(p, id, w.period)
}

// previous returns the bucket before the one of id in w, whose place is p, or nil.
func (s *SlidingWindow) previous(id string, p place, w *window) *entry[bucket] {
	t := s.l.buckets
	return t.find(place{p.hash, p.hash ^ w.last&t.bits}, id, w.period.plus(-1))
}

// retry returns when d, which is denied, will pass.
func (s *SlidingWindow) retry(d *demand, w *window, at slide) time.Time {
	if d.never() {
		return time.Time{}
	}
	return s.l.clock.time(addSat(w.start, at.retry(d.cost, d.limit)*msec))
}

// tally notes a denial in the bucket, or in the shard of p if there is none.
func (s *SlidingWindow) tally(p place, cur *entry[bucket]) {
	if cur == nil {
		s.l.buckets.shard(p).denied.Add(1)
		return
	}
	cur.state.denied.Add(1)
}

// Peek implements [Peeker].
func (s *SlidingWindow) Peek(_ context.Context, r *Request) (*Result, error) {
	var d demand
	if err := s.l.sound(&d, r); err != nil {
		return nil, err
	}
	w, at := s.look(&d)
	used := at.used()
	if d.never() || used > d.limit-d.cost {
		return &Result{Deny, uint64(used), s.retry(&d, w, at)}, nil
	}
	return &Result{Allow, uint64(used + d.cost), w.expires}, nil
}

// look returns the slide of d now, and changes nothing.
func (s *SlidingWindow) look(d *demand) (*window, slide) {
	for w := s.recent(d.scale); ; {
		prev, cur := s.find(d.id, w)
		now := s.l.clock.read()
		if !w.holds(now) {
			w = s.l.window(now, w.scale)
			continue
		}
		var before, count int64
		if prev != nil {
			before = prev.state.admitted()
		}
		if cur != nil {
			count = cur.state.admitted()
		}
		return w, w.at(now, before, count)
	}
}

// Refund implements [Refunder]. What was taken in the previous window still counts there, and is given back there.
func (s *SlidingWindow) Refund(_ context.Context, r *Request, taken *Result) error {
	l := s.l
	var d demand
	err := l.sound(&d, r)
	if err != nil || !taken.Allowed() {
		return err
	}
	w := l.window(l.clock.read(), sliding.scale(d.scale))
	prev, cur := s.find(d.id, w)
	var from *entry[bucket]
	switch l.clock.instantOf(taken.ExpiresAt) {
	case w.lasts():
		from = cur
	case w.end:
		from = prev
	}
	if from == nil {
		return nil
	}
	l.surplus.Add(-from.state.refund(d.cost))
	if from == prev {
		// Looked for only now: a bucket made before this has learned what prev was, one made after learns what it is.
		if _, cur = s.find(d.id, w); cur != nil {
			cur.state.doubt()
		}
	}
	return nil
}

// Reset implements [Resetter].
func (s *SlidingWindow) Reset(_ context.Context, r *Request) error {
	l := s.l
	var d demand
	if err := l.sound(&d, r); err != nil {
		return err
	}
	prev, cur := s.find(d.id, l.window(l.clock.read(), sliding.scale(d.scale)))
	for _, e := range []*entry[bucket]{prev, cur} {
		if e != nil {
			l.forget(l.buckets.place(d.id, e.period().salt()), e)
		}
	}
	return nil
}

// Seed implements [Seeder]: the current window is raised by what is missing.
func (s *SlidingWindow) Seed(_ context.Context, r *Request, counted *Result) error {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil || !s.l.clock.ahead(counted.ExpiresAt) {
		return err
	}
	to := int64(min(counted.TotalRequests, math.MaxInt64))
	return s.adjust(&d, func(at slide) int64 { return max(0, to-at.used()) })
}

// Charge implements [Charger].
func (s *SlidingWindow) Charge(_ context.Context, r *Request) error {
	var d demand
	err := s.l.sound(&d, r)
	if err != nil {
		return err
	}
	return s.adjust(&d, func(slide) int64 { return d.cost })
}

// adjust adds to the current window what more says.
func (s *SlidingWindow) adjust(d *demand, more func(slide) int64) error {
	return s.l.adjust(d.id, sliding.scale(d.scale), func(b *bucket, stamp uint32) (int64, bool) {
		return b.move(stamp, func(n int64) int64 { // look again for each try: two Seeds must not both add what is missing
			_, at := s.look(d)
			return addSat(n, more(at))
		})
	})
}
