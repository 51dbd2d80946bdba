package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// charge is an OpCharge, so that limits.Reserve can settle on a Fallback. Primary is charged, and
// local with its share, so that it continues from there. If primary cannot charge, the error is
// errors.ErrUnsupported. While primary does not answer, local alone is charged, if possible, and
// primary before it next decides for that key. A charge whose answer was lost may be counted by
// both.
type charge struct {
	v visit

	// At another limit than in the last count a token bucket counts otherwise from then on, so
	// that a lower count proves as little as after a take-back.
	another bool

	answers uint64 // of primary, before the call
}

func newCharge(f *Fallback, op *weir.Op) *visit {
	c := new(charge)
	v := c.v.open(f, &op.Request, time.Time{})
	v.asked, v.task, v.op.Verb = op, c, op.Verb
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	c.answers, c.another = v.a.answers, v.a.counted.limit != v.r.Limit
	if c.another {
		v.a.back.begin()
	}
	return v
}

func (c *charge) finish(ctx context.Context, err error) {
	v := &c.v
	if c.another {
		v.a.endTakeBack(err == nil, v.f.cfg.Now().Add(v.r.Duration))
	}
	switch err {
	case nil:
		c.counted(ctx, v.own())
	case errUndecided:
		err = c.owed(ctx, v.own())
	}
	v.asked.Err = err
}

// counted charges local with its share of a charge of primary.
func (c *charge) counted(ctx context.Context, own shared) {
	local, a, cost := c.v.f.local, c.v.a, costOf(c.v.r)
	a.mu.Lock()
	if a.answers == c.answers { // else the last count may have the cost
		a.counted.total = plus(a.counted.total, cost)
	}
	a.mu.Unlock()
	r := *own.r
	r.Cost = share(cost, own.n)
	if local != nil { // without room for the key, local denies its requests too
		_ = by(ctx, local, &weir.Op{Verb: weir.OpCharge, Request: r})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	own.inWindow(r.Cost).admit()
}

// owed charges local with a debt, which primary is to be charged with at its next answer.
func (c *charge) owed(ctx context.Context, own shared) error {
	local, a := c.v.f.local, c.v.a
	counted := new(weir.Result) // without one, the debt counts for a Duration
	if local != nil {
		op := &weir.Op{Verb: weir.OpCharge, Request: *own.r}
		if err := supported(by(ctx, local, op)); err != nil {
			return fmt.Errorf("fallback: local: %w", err)
		}
		op.Verb, op.Cost = weir.OpPeek, 1
		if by(ctx, local, op) == nil {
			counted = &op.Result
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	own.inWindow(costOf(c.v.r)).admit()
	own.recordDebt(counted)
	return nil
}
