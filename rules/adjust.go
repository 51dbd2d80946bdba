package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
)

// ample is a limit that only a count reaches that is as high as its store can hold. A window does
// not store the limit with its count, so a request with this limit reads the same count.
const ample = math.MaxInt64

// giveBack returns the hits of descriptors that give them back, and peeks at what is left.
func (c *call) giveBack(ctx context.Context) error {
	var errs []error
	defer func() { c.logs = nil }()
	for i := range c.asks {
		a := &c.asks[i]
		if !a.refunds || a.limit.Requests == 0 {
			continue
		}
		errs = append(errs, c.refund(ctx, a, c.engine.cfg.Now()))
		a.held.Exempt, a.held.Look, a.held.Advisory = false, true, true
		_, err := c.limits[i:i+1].Take(ctx, nil)
		errs = append(errs, err)
		a.held.Result.State = weir.Allow // what gives back is never over
	}
	return errors.Join(errs...)
}

// refund returns a's hits to its count, but at most as many as are counted.
func (c *call) refund(ctx context.Context, a *ask, now time.Time) error {
	taken, err := a.lastTaken(ctx, now)
	if err != nil {
		return err
	}
	req := a.held.Request
	if a.limit.Algorithm == TokenBucket {
		req.Cost = min(req.Cost, a.limit.capacity())
	} else {
		req.Limit = max(req.Limit, req.Cost) // a strategy refuses to refund more than the limit
	}
	switch log, ok := a.strategy.counter.(entries); {
	case ok:
		return c.refundEntries(ctx, a, log, req)
	case a.limit.Algorithm == SlidingLog:
		return fmt.Errorf("rules: %s lists no entries to give back: %w",
			weir.NameOf(a.strategy.counter), errors.ErrUnsupported)
	}
	return a.strategy.Refund(ctx, &req, taken)
}

// lastTaken returns a Result of the current period, for Refund.
func (a *ask) lastTaken(ctx context.Context, now time.Time) (*weir.Result, error) {
	if a.limit.Algorithm == TokenBucket {
		return &weir.Result{State: weir.Allow, ExpiresAt: now.Add(bounds.MaxDuration)}, nil
	}
	req := a.held.Request
	req.Cost, req.Limit = 1, ample
	taken, err := a.strategy.Peek(ctx, &req)
	if err != nil || taken.Allowed() {
		return taken, err
	}
	taken.State = weir.Allow // a fixed window ends at ExpiresAt of a denial, too
	if a.limit.Algorithm == SlidingWindow {
		_, into := arith.FloorDiv(now.UnixNano(), int64(req.Duration))
		taken.ExpiresAt = now.Add(2*req.Duration - time.Duration(into))
	}
	return taken, nil
}

// entries is implemented by sliding logs.
type entries interface {
	Hits(ctx context.Context, r *weir.Request) ([]weir.Hit, error)
}

// refundEntries refunds a's hits to a log, the newest entries first. Of a log that a request gives
// back to more than once, the entries are listed once.
func (c *call) refundEntries(
	ctx context.Context, a *ask, log entries, req weir.Request,
) (err error) {
	of := listed{a.strategy, req.Key, req.Duration}
	hits, ok := c.logs[of]
	if !ok {
		hits, err = log.Hits(ctx, &req)
	}
	left := req.Cost
	for err == nil && len(hits) > 0 && left > 0 {
		last := &hits[len(hits)-1]
		req.Cost = min(left, last.Cost)
		left -= req.Cost
		err = a.strategy.Refund(ctx, &req, &weir.Result{
			State: weir.Allow, ExpiresAt: last.At.Add(req.Duration),
		})
		last.Cost -= req.Cost
		if last.Cost == 0 {
			hits = hits[:len(hits)-1]
		}
	}
	if c.logs == nil {
		c.logs = make(map[listed][]weir.Hit)
	}
	c.logs[of] = hits
	return err
}

// listed is a log whose entries a request has listed.
type listed struct {
	strategy *strategy
	key      string
	duration time.Duration
}
