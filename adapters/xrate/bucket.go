package xrate

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// Bucket is a token bucket with the methods of a rate.Limiter, which take the instant as an
// argument: Limit tokens flow in evenly in each Duration, and at most Burst are kept. Make one with
// [NewBucket]. It is safe for concurrent use. It is for one key: for many, take a [Limiter] for
// each on one weir.TokenBucket, which bounds their memory.
//
// It admits what a rate.Limiter of the same rate and burst admits, with these differences:
//
//   - An instant before the latest one counts as that, so calls whose instants are out of order add
//     no tokens. A rate.Limiter goes back with them (golang/go#65508).
//   - Tokens are whole: TokensAt rounds down, and the interval between two tokens is Duration/Limit
//     rounded up to a nanosecond. A rate.Limiter counts in float64.
//   - A negative n counts as 0. A rate.Limiter adds tokens.
//   - CancelAt returns whole tokens, and only once.
//   - Instants are from 1678 to 2262; the zero time.Time counts as the latest instant.
//   - Inf, SetLimit and SetBurst are left out.
type Bucket struct {
	limiter *weir.Limiter
	tokens  *weir.TokenBucket
	clock   *atomic.Int64 // Unix ns; written under mu
	request weir.Request
	burst   int
	each    time.Duration // between two tokens
	cleanup runtime.Cleanup

	mu   sync.Mutex
	last time.Time // guarded by mu; the latest instant at which a reservation is to act
	op   weir.Op   // guarded by mu; of tokens
}

// earliest is before all instants that callers may begin with: 1678-01-01.
var earliest = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// NewBucket returns a full Bucket. It fails if limit or burst is not positive, if duration is not a
// whole number of milliseconds from 1 ms to 365 days, or if the burst takes longer than 146 years
// to flow in. rate.Limit(0.5), a token each two seconds, is NewBucket(1, 2*time.Second, burst).
func NewBucket(limit uint64, duration time.Duration, burst int) (*Bucket, error) {
	if limit == 0 || burst <= 0 {
		return nil, fmt.Errorf("xrate: %d tokens in %v and a burst of %d admit nothing", limit, duration,
			burst)
	}
	clock := new(atomic.Int64)
	clock.Store(earliest)
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	limiter, err := weir.New(weir.Config{MaxBuckets: 1, Now: now})
	if err != nil {
		return nil, err
	}
	b := &Bucket{
		limiter: limiter,
		tokens:  limiter.TokenBucket(uint64(burst)),
		clock:   clock,
		request: weir.Request{Key: "bucket", Limit: limit, Duration: duration, Cost: 1},
		burst:   burst,
	}
	if _, err := b.do(weir.OpPeek, 1, weir.Result{}); err != nil {
		_ = limiter.Close()
		return nil, err
	}
	limit = min(limit, uint64(duration)) // no interval is shorter than a nanosecond
	b.each = time.Duration((uint64(duration) + limit - 1) / limit)
	// The goroutine of the limiter's janitor ends with b.
	b.cleanup = runtime.AddCleanup(b, func(l *weir.Limiter) { _ = l.Close() }, limiter)
	return b, nil
}

// Close ends the goroutine that a Bucket has once it is used; later calls admit nothing. It is not
// needed: an unreachable Bucket is closed. In a testing/synctest bubble, close it before the bubble
// ends.
func (b *Bucket) Close() {
	b.cleanup.Stop()
	_ = b.limiter.Close()
}

// Limit returns the rate in events per second.
func (b *Bucket) Limit() float64 { return float64(b.request.Limit) / b.request.Duration.Seconds() }

// Burst returns how many tokens are kept.
func (b *Bucket) Burst() int { return b.burst }

// Allow reports whether an event may happen now.
func (b *Bucket) Allow() bool { return b.AllowN(time.Now(), 1) }

// AllowN reports whether n events may happen at t; if not, it takes nothing.
func (b *Bucket) AllowN(t time.Time, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(t)
	return b.reserve(n, 0).ok
}

// Tokens returns how many tokens there are now; fewer than 0 are reserved ones that have yet to
// flow in.
func (b *Bucket) Tokens() float64 { return b.TokensAt(time.Now()) }

// TokensAt returns how many tokens there are at t.
func (b *Bucket) TokensAt(t time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(t)
	return b.count()
}

// Reserve is ReserveN(time.Now(), 1).
func (b *Bucket) Reserve() *Reservation { return b.ReserveN(time.Now(), 1) }

// ReserveN takes n tokens at t, those that have yet to flow in too, and returns when the n events
// may happen. It is not OK, and takes nothing, if n is over the burst.
func (b *Bucket) ReserveN(t time.Time, n int) *Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(t)
	r := b.reserve(n, math.MaxInt64)
	return &r
}

// Wait waits until an event may happen. It is WaitN(ctx, 1).
func (b *Bucket) Wait(ctx context.Context) error { return b.WaitN(ctx, 1) }

// WaitN waits until n events may happen, in order of arrival. It fails at once, and takes nothing,
// if n is over the burst, with an error that wraps weir.ErrLimit, or if the deadline of ctx is too
// early, with one that wraps context.DeadlineExceeded. It fails with the context's error if that
// ends before, and returns the tokens if possible: in overload those of most callers are not, as
// with a rate.Limiter, and the next ones wait for them. There, give contexts deadlines, or take a
// [Limiter], which takes nothing before its turn.
func (b *Bucket) WaitN(ctx context.Context, n int) error {
	if n > b.burst {
		return fmt.Errorf("xrate: %d is over the burst of %d: %w", n, b.burst, weir.ErrLimit)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	now, maxWait := time.Now(), time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = deadline.Sub(now)
	}
	b.mu.Lock()
	b.advance(now)
	r := b.reserve(n, maxWait)
	b.mu.Unlock()
	if !r.ok {
		return fmt.Errorf("xrate: waiting for %d: %w", n, context.DeadlineExceeded)
	}
	timer := time.NewTimer(r.DelayFrom(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.Cancel()
		return ctx.Err()
	}
}

// Reservation is the permission for events at a later instant.
type Reservation struct {
	ok     bool
	bucket *Bucket
	n      int // guarded by bucket.mu; 0 once it was given back
	act    time.Time
	taken  weir.Result // the admission, for a refund
}

// InfDuration is the delay of a Reservation that is not OK.
const InfDuration = time.Duration(math.MaxInt64)

// OK reports whether the events may happen at all.
func (r *Reservation) OK() bool { return r.ok }

// Delay is DelayFrom(time.Now()).
func (r *Reservation) Delay() time.Duration { return r.DelayFrom(time.Now()) }

// DelayFrom returns how long after t the events may happen: 0 at once, InfDuration never.
func (r *Reservation) DelayFrom(t time.Time) time.Duration {
	if !r.ok {
		return InfDuration
	}
	return max(0, r.act.Sub(t))
}

// Cancel is CancelAt(time.Now()).
func (r *Reservation) Cancel() { r.CancelAt(time.Now()) }

// CancelAt returns the tokens, unless the events may have happened at t. As with a rate.Limiter,
// tokens that later reservations build on are not returned: their instants stand.
func (r *Reservation) CancelAt(t time.Time) {
	if !r.ok || r.act.Before(t) {
		return
	}
	b := r.bucket
	b.mu.Lock()
	defer b.mu.Unlock()
	n, later := r.n, max(0, int((b.last.Sub(r.act)+b.each-1)/b.each))
	r.n = 0
	if later >= n {
		return
	}
	b.advance(t)
	// it fails for bad input or after Close only
	_, _ = b.do(weir.OpReturn, n-later, r.taken)
	if before := r.act.Add(-time.Duration(n) * b.each); later == 0 && !before.Before(t) {
		b.last = before
	}
}

// advance moves the clock to t, never back. mu is held.
func (b *Bucket) advance(t time.Time) {
	if !t.IsZero() {
		b.clock.Store(max(b.clock.Load(), t.UnixNano()))
	}
}

// do does verb of n tokens, of an OpReturn of those that were taken with a Result. mu is held.
func (b *Bucket) do(verb weir.Verb, n int, taken weir.Result) (weir.Result, error) {
	b.op = weir.Op{Verb: verb, Request: b.request, Result: taken}
	b.op.Cost = uint64(n)
	err := weir.Do(context.Background(), b.tokens, &b.op)
	return b.op.Result, err
}

// count returns the tokens. mu is held.
func (b *Bucket) count() float64 {
	res, err := b.do(weir.OpPeek, 1, weir.Result{})
	if err != nil {
		return math.NaN() // NewBucket checked the request, and nobody closes the limiter
	}
	return tokens(&res, b.burst)
}

// reserve takes n tokens, unless that means to wait for longer than maxWait. mu is held.
func (b *Bucket) reserve(n int, maxWait time.Duration) Reservation {
	now := time.Unix(0, b.clock.Load())
	r := Reservation{bucket: b, n: max(0, n), act: now}
	if r.n > b.burst {
		return r
	}
	if r.n == 0 {
		r.act = b.paid(now)
		r.ok = r.act.Sub(now) <= maxWait
		return r
	}
	res, err := b.do(weir.OpTake, r.n, weir.Result{})
	if err != nil {
		return r
	}
	if !res.Allowed() {
		if r.act = res.ExpiresAt; r.act.Sub(now) > maxWait {
			return r
		}
		if _, err = b.do(weir.OpCharge, r.n, weir.Result{}); err != nil {
			return r
		}
	}
	r.ok, b.last = true, r.act
	r.taken = weir.Result{State: weir.Allow, ExpiresAt: r.act.Add(time.Duration(b.burst) * b.each)}
	return r
}

// paid returns the instant at which debts have flowed in. mu is held.
func (b *Bucket) paid(now time.Time) time.Time {
	res, err := b.do(weir.OpPeek, 1, weir.Result{})
	if err != nil || res.Allowed() {
		return now
	}
	at := res.ExpiresAt.Add(-b.each) // when there is a token, less one
	if at.Before(now) {
		return now
	}
	return at
}
