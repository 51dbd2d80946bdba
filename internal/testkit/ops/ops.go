// Package ops has the verbs of a weir.Counter as functions, for tests.
package ops

import (
	"context"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

// Do does one op of s, and returns it.
func Do(ctx context.Context, s weir.Strategy, op weir.Op) *weir.Op {
	op.Counter = weir.CounterOf(s)
	op.Counter.Do(ctx, []*weir.Op{&op})
	return &op
}

// Can reports whether s says that it can do v.
func Can(s weir.Strategy, v weir.Verb) bool { return weir.CounterOf(s).About().Verbs.Has(v) }

// Name returns the plain name of s.
func Name(s weir.Strategy) string { return weir.CounterOf(s).About().String() }

func decision(op *weir.Op) (*weir.Result, error) {
	if op.Err != nil {
		return nil, op.Err
	}
	return &op.Result, nil
}

// Peek returns the Result of an OpPeek.
func Peek(ctx context.Context, s weir.Strategy, r *weir.Request) (*weir.Result, error) {
	return decision(Do(ctx, s, weir.Op{Verb: weir.OpPeek, Request: *r}))
}

// Refund gives back without a Receipt.
func Refund(ctx context.Context, s weir.Strategy, r *weir.Request, taken *weir.Result) error {
	return Do(ctx, s, weir.Op{Verb: weir.OpReturn, Request: *r, Result: *taken}).Err
}

// Return gives back cost of an admission.
type Return func(ctx context.Context, cost uint64) error

// Admit is an OpTake with a Receipt, and returns what gives back by that. It may be called
// concurrently.
func Admit(ctx context.Context, s weir.Strategy, r *weir.Request) (*weir.Result, Return, error) {
	op := Do(ctx, s, weir.Op{Verb: weir.OpTake, Request: *r, Keep: true})
	if op.Err != nil {
		return nil, nil, op.Err
	}
	taken := op.Result
	var mu sync.Mutex
	return &taken, func(ctx context.Context, cost uint64) error {
		if cost == 0 {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		op.Verb, op.Cost = weir.OpReturn, cost
		op.Counter.Do(ctx, []*weir.Op{op})
		return op.Err
	}, nil
}

// Reset does an OpReset.
func Reset(ctx context.Context, s weir.Strategy, r *weir.Request) error {
	return Do(ctx, s, weir.Op{Verb: weir.OpReset, Request: *r}).Err
}

// ResetPrefix does an OpResetPrefix.
func ResetPrefix(
	ctx context.Context, s weir.Strategy, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	op := weir.Op{Verb: weir.OpResetPrefix, Progress: progress}
	op.Key = prefix
	done := Do(ctx, s, op)
	return int(done.Result.TotalRequests), done.Err
}

// Warm does an OpWarm.
func Warm(ctx context.Context, s weir.Strategy, r *weir.Request) error {
	return Do(ctx, s, weir.Op{Verb: weir.OpWarm, Request: *r}).Err
}

// Seed raises a count to counted.
func Seed(ctx context.Context, s weir.Strategy, r *weir.Request, counted *weir.Result) error {
	return Do(ctx, s, weir.Op{Verb: weir.OpCatchUp, Request: *r,
		Backlog: &weir.Backlog{Counted: counted}}).Err
}

// Charge does an OpCharge.
func Charge(ctx context.Context, s weir.Strategy, r *weir.Request) error {
	return Do(ctx, s, weir.Op{Verb: weir.OpCharge, Request: *r}).Err
}

// Reconcile is an OpTake with a Backlog.
func Reconcile(
	ctx context.Context, s weir.Strategy, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	return decision(Do(ctx, s, weir.Op{Verb: weir.OpTake, Request: *r, Backlog: b}))
}

// Forecast does an OpForecast.
func Forecast(
	ctx context.Context, s weir.Strategy, r *weir.Request, admitted *weir.Result,
) (time.Time, error) {
	op := Do(ctx, s, weir.Op{Verb: weir.OpForecast, Request: *r, Result: *admitted})
	return op.More, op.Err
}

// Hits does an OpHits.
func Hits(ctx context.Context, s weir.Strategy, r *weir.Request) ([]weir.Hit, error) {
	op := Do(ctx, s, weir.Op{Verb: weir.OpHits, Request: *r})
	return op.Hits, op.Err
}

// Lookup does an OpLookup, and returns nil if that takes a round trip.
func Lookup(s weir.Strategy, r *weir.Request) *weir.Result {
	res, _ := decision(Do(context.Background(), s, weir.Op{Verb: weir.OpLookup, Request: *r}))
	return res
}

// Forget does an OpForget.
func Forget(s weir.Strategy, r *weir.Request) {
	Do(context.Background(), s, weir.Op{Verb: weir.OpForget, Request: *r})
}

// Place is what an OpHold has admitted.
type Place struct{ op *weir.Op }

// Acquire does an OpHold. The Place is nil with a denial.
func Acquire(ctx context.Context, s weir.Strategy, r *weir.Request) (*weir.Result, *Place, error) {
	op := Do(ctx, s, weir.Op{Verb: weir.OpHold, Request: *r})
	res, err := decision(op)
	if err != nil || !res.Allowed() {
		return res, nil, err
	}
	taken := op.Result
	return &taken, &Place{op}, nil
}

// Renew does an OpRenew.
func (p *Place) Renew(ctx context.Context) (held bool, err error) {
	p.op.Verb = weir.OpRenew
	p.op.Counter.Do(ctx, []*weir.Op{p.op})
	return p.op.Err == nil && p.op.Result.Allowed(), p.op.Err
}

// Release does an OpRelease.
func (p *Place) Release(ctx context.Context) error {
	p.op.Verb = weir.OpRelease
	p.op.Counter.Do(ctx, []*weir.Op{p.op})
	return p.op.Err
}
