package weir

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// TokenBucket is the token bucket, kept as the generic cell rate algorithm (GCRA) keeps it: one instant per caller, the
// theoretical arrival time, at which its bucket is full again. Make one with [Limiter.TokenBucket].
type TokenBucket struct {
	l     *Limiter
	burst uint64
	rates [64]atomic.Pointer[rate] // remembered, by limit and duration, in one of `probes` neighbours; each is read-only
}

// TokenBucket returns a token bucket as a Strategy: Limit tokens flow in evenly in each Duration, and at most burst of
// them are kept; 0 means Limit. In any span of one Duration at most burst+Limit are admitted.
//
// The interval between two tokens is Duration/Limit rounded up to a whole nanosecond, so never more than Limit flow in.
// A decision is one compare-and-swap; a denied one writes nothing. A clock that goes back mints no tokens: time is never
// earlier than the arrival time that is stored. When Limit changes, what was used keeps the time in which it flows in
// again. A burst that takes longer than 146 years to flow in is [ErrLimit].
//
// The algorithm is that of ATM Forum TM 4.0 (1996); it differs from the throttled package in having no store between
// reading and writing.
func (l *Limiter) TokenBucket(burst uint64) *TokenBucket {
	l.tokensOnce.Do(func() {
		l.tokens = newTable[arrival](&l.room, func(a *arrival) { a.at.Store(math.MinInt64) })
		l.janitor.add(l.tokens)
	})
	return &TokenBucket{l: l, burst: min(burst, math.MaxInt64)}
}

// arrival is a caller's theoretical arrival time.
type arrival struct{ at atomic.Int64 }

// Before and after its life an arrival has no time. Birth, as of a bucket, is by a reading of the clock made when the
// entry is in the table.
const (
	notYet = math.MinInt64
	dead   = math.MinInt64 + 1
)

func (a *arrival) over(period) int64 {
	if at := a.at.Load(); at > dead {
		return at
	}
	return maxInstant
}

func (a *arrival) bury(_ period, _, now, grace int64) bool {
	at := a.at.Load()
	return now >= addSat(at, grace) && a.at.CompareAndSwap(at, dead)
}

func (a *arrival) settled() (allowed, denied uint64) { return 0, 0 }

// rate is what a limit, a duration and a burst come to.
type rate struct {
	limit, scale int64
	duration     time.Duration
	interval     int64 // ns between two tokens
	size         int64 // what a bucket holds; 0 for a limit of 0, at which nothing ever flows in
	tolerance    int64 // ns in which a bucket fills: size intervals
	period       period
	salt         uint64
}

func (t *TokenBucket) slot(limit int64, d time.Duration, way uint64) *atomic.Pointer[rate] {
	return &t.rates[uint64(limit^int64(d)<<20)*0x9e3779b97f4a7c15>>58^way]
}

// rate returns the rate of limit and scale, remembered or new.
func (t *TokenBucket) rate(limit, scale int64) (*rate, error) {
	duration := time.Duration(scale * msec)
	free := t.slot(limit, duration, 0)
	for way := range uint64(probes) {
		known := t.slot(limit, duration, way)
		r := known.Load()
		if r != nil && r.limit == limit && r.duration == duration {
			return r, nil
		}
		if r == nil {
			free = known
			break
		}
	}
	of := periodOf(scale, 0)
	r := &rate{limit: limit, scale: scale, duration: duration, period: of, salt: of.salt()}
	if limit > 0 {
		r.interval = (scale*msec-1)/limit + 1
		r.size = int64(orElse(t.burst, uint64(limit)))
	}
	hi, lo := bits.Mul64(uint64(r.interval), uint64(r.size))
	if hi > 0 || lo > 1<<62 {
		return nil, fmt.Errorf("%w: a burst of %d at %d in %v takes centuries to refill", ErrLimit, r.size, limit, r.duration)
	}
	r.tolerance = int64(lo)
	free.Store(r)
	return r, nil
}

// Run implements [Strategy]. Its errors are those of [Limiter.CheckRate].
func (t *TokenBucket) Run(ctx context.Context, r *Request) (*Result, error) {
	res, err := t.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (t *TokenBucket) Decide(_ context.Context, r *Request) (res Result, err error) {
	res.State, res.TotalRequests, res.ExpiresAt, err = t.decide(r)
	return
}

// decide returns the parts of a Result, which Decide, being inlined, puts together where they are used: a struct of
// five words is returned through memory, at 15 ns of 95.
func (t *TokenBucket) decide(r *Request) (State, uint64, time.Time, error) {
	l := t.l
	var d demand
	rate := t.slot(int64(r.Limit), r.Duration, 0).Load()
	if rate == nil || !d.readAs(r, rate.duration, rate.scale) || d.limit != rate.limit || l.closed.Load() {
		var err error
		if rate, err = t.sound(&d, r); err != nil {
			return Deny, 0, time.Time{}, err
		}
	} else {
		d.limit = rate.size
	}
	p := l.tokens.place(d.id, rate.salt)
	if d.never() {
		l.tokens.shard(p).denied.Add(1)
		res := t.peek(&d, rate)
		return res.State, res.TotalRequests, res.ExpiresAt, nil
	}
	for {
		e, at, err := t.find(p, d.id, rate.period)
		if err != nil {
			return Deny, 0, time.Time{}, err
		}
		now := l.clock.read() // after the reading at birth: a new bucket is full
		next, ok := rate.next(at, now, d.cost)
		if !ok {
			l.tokens.lower(p, at) // find may have made it
			l.tokens.shard(p).denied.Add(1)
			return Deny, rate.tokens(at - now), l.clock.time(next - rate.tolerance), nil
		}
		if e.state.at.CompareAndSwap(at, next) {
			l.tokens.lower(p, next)
			l.tokens.shard(p).allowed.Add(1)
			return Allow, rate.tokens(next - now), l.clock.time(next), nil
		}
	}
}

// next returns the arrival time of a bucket, whose own is at, with cost taken from it at now, and whether it has that.
func (r *rate) next(at, now, cost int64) (next int64, ok bool) {
	next = addSat(max(at, now), cost*r.interval)
	return next, next-now <= r.tolerance
}

// sound checks r. d.limit becomes what a bucket holds.
func (t *TokenBucket) sound(d *demand, r *Request) (*rate, error) {
	if err := t.l.sound(d, r); err != nil {
		return nil, err
	}
	rate, err := t.rate(d.limit, d.scale)
	if err != nil {
		return nil, t.l.fail(err)
	}
	d.limit = rate.size
	return rate, nil
}

// find returns the live entry of a key and its arrival time, and makes it if there is none.
func (t *TokenBucket) find(p place, id string, of period) (*entry[arrival], int64, error) {
	for {
		e := t.l.tokens.find(p, id, of)
		if e == nil {
			var err error
			if e, err = t.l.tokens.insert(p, id, of); err != nil {
				return nil, 0, t.l.fail(err)
			}
		}
		switch at := e.state.at.Load(); at {
		case notYet:
			e.state.at.CompareAndSwap(notYet, max(dead+1, t.l.clock.read())) // no reading is a mark
		case dead:
			t.l.tokens.remove(p, e)
		default:
			return e, at, nil
		}
	}
}

// tokens returns how many flow in in ns, rounded up.
func (r *rate) tokens(ns int64) uint64 {
	switch {
	case ns <= 0 || r.interval == 0: // full, or never to flow in
		return 0
	case ns <= r.interval: // most callers stay below their limit; a division costs as much as a look-up
		return 1
	}
	return uint64((ns-1)/r.interval) + 1
}

func (t *TokenBucket) peek(d *demand, r *rate) Result {
	at := int64(notYet)
	if e := t.l.tokens.find(t.l.tokens.place(d.id, r.salt), d.id, r.period); e != nil {
		at = e.state.at.Load()
	}
	now := t.l.clock.read() // after the reading at birth: a new bucket is full
	if d.never() {
		return Result{State: Deny, TotalRequests: r.tokens(addSat(at, -now))}
	}
	next, ok := r.next(at, now, d.cost)
	if !ok {
		return Result{Deny, r.tokens(at - now), t.l.clock.time(next - r.tolerance)}
	}
	return Result{Allow, r.tokens(next - now), t.l.clock.time(next)}
}

// Peek implements [Peeker].
func (t *TokenBucket) Peek(_ context.Context, r *Request) (*Result, error) {
	var d demand
	rate, err := t.sound(&d, r)
	if err != nil {
		return nil, err
	}
	res := t.peek(&d, rate)
	return &res, nil
}

// Refund implements [Refunder].
func (t *TokenBucket) Refund(_ context.Context, r *Request, taken *Result) error {
	var d demand
	rate, err := t.sound(&d, r)
	if err != nil || !taken.Allowed() || d.never() {
		return err
	}
	p := t.l.tokens.place(d.id, rate.salt)
	e := t.l.tokens.find(p, d.id, rate.period)
	if e == nil {
		return nil
	}
	now := t.l.clock.read()
	for {
		at := e.state.at.Load()
		if at <= now { // full already, or dead
			return nil
		}
		// Of what r took, that which has flowed in again since is not given back twice.
		back := min(d.cost*rate.interval, t.l.clock.instantOf(taken.ExpiresAt)-now)
		if back <= 0 {
			return nil
		}
		if to := max(now, at-back); e.state.at.CompareAndSwap(at, to) {
			t.l.tokens.lower(p, to)
			return nil
		}
	}
}

// Reset implements [Resetter].
func (t *TokenBucket) Reset(_ context.Context, r *Request) error {
	var d demand
	rate, err := t.sound(&d, r)
	if err != nil {
		return err
	}
	p := t.l.tokens.place(d.id, rate.salt)
	if e := t.l.tokens.find(p, d.id, rate.period); e != nil {
		e.state.at.Store(dead)
		t.l.tokens.remove(p, e)
	}
	return nil
}

// Seed implements [Seeder].
func (t *TokenBucket) Seed(_ context.Context, r *Request, counted *Result) error {
	if !t.l.clock.ahead(counted.ExpiresAt) {
		return t.l.sound(new(demand), r)
	}
	return t.adjust(r, func(d *demand, rate *rate, at, now int64) int64 {
		return max(at, addSat(now, mulSat(counted.TotalRequests, rate.interval)))
	})
}

// Charge implements [Charger].
func (t *TokenBucket) Charge(_ context.Context, r *Request) error {
	return t.adjust(r, func(d *demand, rate *rate, at, now int64) int64 {
		return addSat(max(at, now), mulSat(uint64(d.cost), rate.interval))
	})
}

// adjust moves a caller's arrival time.
func (t *TokenBucket) adjust(r *Request, to func(d *demand, rate *rate, at, now int64) int64) error {
	var d demand
	rate, err := t.sound(&d, r)
	if err != nil {
		return err
	}
	p := t.l.tokens.place(d.id, rate.salt)
	for {
		e, at, err := t.find(p, d.id, rate.period)
		if err != nil {
			return err
		}
		now := t.l.clock.read()
		if next := to(&d, rate, at, now); e.state.at.CompareAndSwap(at, next) {
			t.l.tokens.lower(p, next)
			return nil
		}
	}
}
