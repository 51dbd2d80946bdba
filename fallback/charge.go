package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// charge is an OpCharge, so that limits.Reserve can settle on a Fallback. Primary is charged, and
// local with its share, so that it continues from there. If primary cannot charge, the error is
// errors.ErrUnsupported. While primary does not answer, local alone is charged, if it can be, and
// primary before it next decides for that key. A charge whose answer was lost may be counted by
// both.
type charge struct {
	visit
	op *weir.Op

	// At another limit than in the last count a token bucket counts otherwise from then on, so
	// that a lower count proves as little as after a take-back.
	another bool
}

func newCharge(f *Fallback, op *weir.Op) *visit {
	c := &charge{op: op}
	c.open(f, &op.Request, time.Time{})
	c.task = c
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	c.another = c.a.counted.limit != c.r.Limit
	if c.another {
		c.a.back.begin()
	}
	return &c.visit
}

func (c *charge) ask(op *weir.Op) { op.Verb = weir.OpCharge }

func (c *charge) answer(context.Context, *weir.Op) *result { return nil }

func (c *charge) finish(ctx context.Context, _ *result, err error) {
	f := c.f
	if c.another {
		c.a.endTakeBack(err == nil, f.cfg.Now().Add(c.period().length()))
	}
	if err == nil || err == errUndecided {
		own := c.share(c.a.sharedAmong(uint64(f.Instances()), f.cfg.Now()))
		if err == nil {
			c.counted(ctx, own)
		} else {
			err = c.owed(ctx, own)
		}
	}
	c.op.Err = err
}

// counted charges local with its share of a charge of primary.
func (c *charge) counted(ctx context.Context, own shared) {
	cost := costOf(c.r)
	c.a.recount(cost, 0)
	r := *own.r
	r.Cost = share(cost, own.n)
	if c.f.local != nil { // if it has no room for the key, it denies its requests too
		_ = by(ctx, c.f.local, &weir.Op{Verb: weir.OpCharge, Request: r})
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	own.inWindow(r.Cost).admit()
}

// owed charges local with a debt, which primary is to be charged with once it answers.
func (c *charge) owed(ctx context.Context, own shared) error {
	counted := new(weir.Result) // without it, the debt counts for a Duration
	if c.f.local != nil {
		op := &weir.Op{Verb: weir.OpCharge, Request: *own.r}
		if err := supported(by(ctx, c.f.local, op)); err != nil {
			return fmt.Errorf("fallback: local: %w", err)
		}
		op.Verb, op.Cost = weir.OpPeek, 1
		if by(ctx, c.f.local, op) == nil {
			counted = &op.Result
		}
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	own.inWindow(costOf(c.r)).admit()
	own.recordDebt(counted)
	return nil
}
