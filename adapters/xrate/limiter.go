// Package xrate has the methods of golang.org/x/time/rate on the strategies of package weir, for
// programs that are written to them.
//
//	requests := limiter.SlidingWindow().Limit(100, time.Minute)
//	lim := xrate.New(requests, xrate.Config{Key: tenant})
//	if !lim.Allow() { … }
//	if err := lim.Wait(ctx); err != nil { … }
//
// There are two types. A [Limiter] is one key of any [weir.Limit], and decides now: it has Allow,
// Wait, WaitN and Tokens. A [Bucket] is a token bucket of its own, and also decides at the instants
// of its callers: it has AllowN(t, n), Reserve, ReserveN(t, n) and TokensAt(t) too, as
// a rate.Limiter has, except for Inf, SetLimit and SetBurst.
//
// Package weir has no part of golang.org/x/time in it, and this package has none either: a
// Reservation is not a *rate.Reservation.
package xrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// Config is the key of a [Limiter], and what it does about errors.
type Config struct {
	// Key is counted: 1 to 1024 bytes. Limiters with one key on one limit share a budget.
	Key string

	// FailOpen admits when the limit cannot decide. false: Allow returns false, and Wait the error.
	// As in httplimit, it does not admit on bad input (weir.ErrID, ErrScale, ErrLimit) nor on
	// weir.ErrFull, which a client that varies its key can cause.
	FailOpen bool

	// OnError is called with the error of a limit that cannot decide, since Allow has nowhere to
	// return it. It is called concurrently. nil: none.
	OnError func(error)
}

// Limiter is one key of a limit. It is safe for concurrent use. Make one with [New]; it holds
// nothing but its Config, so one can be made for each request.
//
// It differs from a rate.Limiter in what the limit's Strategy does, and in this:
//
//   - Wait admits in order of arrival as weir.Wait does: among the callers in this process whose
//     Limiters have one Key and equal limits. It takes nothing before its turn.
//   - There are no AllowN(t, n) and ReserveN(t, n): a Strategy decides by its own clock, and does
//     not promise an admission at a later instant. TakeN(n) is AllowN(time.Now(), n).
//   - A negative n counts as 0, which is always admitted and counts nothing.
type Limiter struct {
	limit    *weir.Limit
	strategy weir.Counter // of limit
	waited   *marked      // the same
	cfg      Config
}

// New returns a Limiter on m, which has numbers, as limits.All and Tiers have none. A bad Key is an
// error of the first decision. It panics if m bounds work in flight, which only its Hold releases.
func New(m *weir.Limit, cfg Config) *Limiter {
	if of := limits.NewAttempt(m); of.InFlight() {
		panic(fmt.Sprintf("xrate: nobody would release an event of %v: use its Hold", m))
	}
	l := &Limiter{limit: m, strategy: weir.CounterOf(m), cfg: cfg}
	l.waited = &marked{Counter: l.strategy}
	l.waited.about = l.strategy.About().By(l.waited)
	l.waited.about.Counts = marks{l.strategy.About().Counts}
	return l
}

// Limit returns the rate in events per second.
func (l *Limiter) Limit() float64 {
	n, d := l.limit.Numbers()
	return float64(n) / d.Seconds()
}

// Burst returns how many events are admitted at once at most: the burst of a token bucket, or the
// number of the limit.
func (l *Limiter) Burst() int {
	n, _ := l.limit.Numbers()
	return clampInt(cmp.Or(l.strategy.About().Burst, n))
}

func clampInt(n uint64) int { return int(min(n, math.MaxInt)) }

// Allow reports whether an event may happen now.
func (l *Limiter) Allow() bool { return l.TakeN(1) }

// TakeN reports whether n events may happen now; if not, it takes nothing.
func (l *Limiter) TakeN(n int) bool {
	if n <= 0 {
		return true
	}
	res, err := l.strategy.Run(context.Background(), l.request(n))
	if err != nil {
		return l.failed(err)
	}
	return res.Allowed()
}

// Wait waits until an event may happen. It is WaitN(ctx, 1).
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN waits until n events may happen. It fails at once if n can never be admitted, with an error
// that wraps weir.ErrLimit, or if the deadline of ctx is earlier than that, with one that wraps
// context.DeadlineExceeded. See [weir.Wait].
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	if n <= 0 {
		return ctx.Err()
	}
	_, err := weir.Wait(ctx, l.waited, l.request(n))
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	if ctx.Err() == nil && l.failed(f.err) {
		return nil
	}
	return f.err
}

// marked returns the errors of a Strategy as a failure, to distinguish them from those of
// weir.Wait, which mean that waiting is of no use. It is a value, so that those of one Strategy are
// equal and the callers of Wait have one queue.
type marked struct {
	weir.Counter
	about *weir.About
}

// marks is what marked Counters of one limit count.
type marks struct{ of any }

type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func (m *marked) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return mark(m.Counter.Run(ctx, r))
}

// About implements [weir.Counter].
func (m *marked) About() *weir.About { return m.about }

// Do implements [weir.Counter].
func (m *marked) Do(ctx context.Context, ops []*weir.Op) {
	m.Counter.Do(ctx, ops)
	for _, op := range ops {
		if op.Err != nil {
			op.Err = &failure{op.Err}
		}
	}
}

func mark(res *weir.Result, err error) (*weir.Result, error) {
	if err != nil {
		return nil, &failure{err}
	}
	return res, nil
}

// failed reports whether to admit although the Strategy failed.
func (l *Limiter) failed(err error) bool {
	if l.cfg.OnError != nil {
		l.cfg.OnError(err)
	}
	for _, refused := range [...]error{weir.ErrID, weir.ErrScale, weir.ErrLimit, weir.ErrFull} {
		if errors.Is(err, refused) {
			return false
		}
	}
	return l.cfg.FailOpen
}

// Tokens returns how many events may happen now. It is NaN if the Strategy cannot peek, or
// cannot decide.
func (l *Limiter) Tokens() float64 {
	op := &weir.Op{Verb: weir.OpPeek, Request: *l.request(1)}
	if weir.Do(context.Background(), l.strategy, op) != nil {
		return math.NaN()
	}
	return tokens(&op.Result, l.Burst())
}

// tokens returns what is left of burst, from a Peek at a cost of 1. Fewer than 0 are debts.
func tokens(peeked *weir.Result, burst int) float64 {
	counted := float64(peeked.TotalRequests)
	if peeked.Allowed() {
		counted-- // the one that was not taken
	}
	return float64(burst) - counted
}

func (l *Limiter) request(cost int) *weir.Request {
	n, d := l.limit.Numbers()
	return &weir.Request{Key: l.cfg.Key, Limit: n, Duration: d, Cost: uint64(cost)}
}
