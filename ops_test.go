package weir

import (
	"context"
	"sync"
	"time"
)

// ops has the verbs of a Counter as functions, for the tests of this package: as package ops of
// internal/testkit, which imports it.
var ops verbsForTests

type verbsForTests struct{}

func (verbsForTests) do(ctx context.Context, s Strategy, op Op) *Op {
	op.Counter = CounterOf(s)
	op.Counter.Do(ctx, []*Op{&op})
	return &op
}

func (verbsForTests) decision(op *Op) (*Result, error) {
	if op.Err != nil {
		return nil, op.Err
	}
	return &op.Result, nil
}

func (v verbsForTests) Name(s Strategy) string { return CounterOf(s).About().Name }

func (v verbsForTests) Peek(ctx context.Context, s Strategy, r *Request) (*Result, error) {
	return v.decision(v.do(ctx, s, Op{Verb: OpPeek, Request: *r}))
}

func (v verbsForTests) Refund(ctx context.Context, s Strategy, r *Request, taken *Result) error {
	return v.do(ctx, s, Op{Verb: OpReturn, Request: *r, Result: *taken}).Err
}

func (v verbsForTests) Admit(
	ctx context.Context, s Strategy, r *Request,
) (*Result, func(ctx context.Context, cost uint64) error, error) {
	op := v.do(ctx, s, Op{Verb: OpTake, Request: *r, Keep: true})
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
		op.Verb, op.Cost = OpReturn, cost
		op.Counter.Do(ctx, []*Op{op})
		return op.Err
	}, nil
}

func (v verbsForTests) Reset(ctx context.Context, s Strategy, r *Request) error {
	return v.do(ctx, s, Op{Verb: OpReset, Request: *r}).Err
}

func (v verbsForTests) ResetPrefix(
	ctx context.Context, s Strategy, prefix string, progress func(seen, reset int),
) (int, error) {
	op := v.do(ctx, s, Op{Verb: OpResetPrefix, Request: Request{Key: prefix}, Progress: progress})
	return int(op.Result.TotalRequests), op.Err
}

func (v verbsForTests) Seed(ctx context.Context, s Strategy, r *Request, counted *Result) error {
	return v.do(ctx, s, Op{Verb: OpCatchUp, Request: *r, Backlog: &Backlog{Counted: counted}}).Err
}

func (v verbsForTests) Charge(ctx context.Context, s Strategy, r *Request) error {
	return v.do(ctx, s, Op{Verb: OpCharge, Request: *r}).Err
}

func (v verbsForTests) Forecast(
	ctx context.Context, s Strategy, r *Request, admitted *Result,
) (time.Time, error) {
	op := v.do(ctx, s, Op{Verb: OpForecast, Request: *r, Result: *admitted})
	return op.More, op.Err
}

func (v verbsForTests) Hits(ctx context.Context, s Strategy, r *Request) ([]Hit, error) {
	op := v.do(ctx, s, Op{Verb: OpHits, Request: *r})
	return op.Hits, op.Err
}

// Acquire does an OpHold. The op is nil with a denial; do it again to renew or to release.
func (v verbsForTests) Acquire(ctx context.Context, s Strategy, r *Request) (*Result, *Op, error) {
	op := v.do(ctx, s, Op{Verb: OpHold, Request: *r})
	res, err := v.decision(op)
	if err != nil || !res.Allowed() {
		return res, nil, err
	}
	taken := op.Result
	return &taken, op, nil
}

// Release gives back what Acquire has taken.
func (verbsForTests) Release(ctx context.Context, op *Op) error {
	op.Verb = OpRelease
	op.Counter.Do(ctx, []*Op{op})
	return op.Err
}

// keyedFor returns what counts for a Limit with a name, by a strategy of another package.
func keyedFor(name string, s Strategy, n uint64, d time.Duration) *keyed {
	m := &Limit{strategy: s, name: name, n: n, d: d}
	return m.keyedBy(CounterOf(s))
}

// runTier returns the Result of a Run of s, and the tier that it is of.
func runTier(ctx context.Context, s *Tiers, r *Request) (*Result, Tier, error) {
	v, at, err := s.decide(r, s.l.asOf(ctx), nil)
	res := new(Result)
	s.setResult(res, v, at.Now)
	return res, s.tiers[v.Tier], err
}
