package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// ample is a limit that no count reaches. A window does not store the limit with its count, so a
// request with this limit reads and raises the same count.
const ample = 1 << 40

// raises reports whether a, which is over its limit, should raise its count above the limit.
func (a *ask) raises() bool {
	return a.mode == take && a.used <= a.limit.capacity() &&
		(a.limit.Algorithm == FixedWindow || a.req.Cost > 1)
}

// raise sets the count to the limit plus one, so that a peek is over the limit too. It does nothing
// if the window in which a was denied has ended.
func (a *ask) raise(ctx context.Context) error {
	until, err := a.until(ctx)
	if err != nil {
		return err
	}
	to := a.limit.capacity() + 1
	if a.strategy.seeder != nil {
		return a.strategy.seeder.Seed(ctx, &a.req,
			&weir.Result{State: weir.Allow, TotalRequests: to, ExpiresAt: until})
	}
	if a.limit.Algorithm == TokenBucket {
		return nil // the count of a bucket cannot exceed its burst
	}
	return a.fill(ctx, to)
}

// until returns the end of the period in which a was denied.
func (a *ask) until(ctx context.Context) (time.Time, error) {
	if !a.res.ExpiresAt.IsZero() {
		return a.res.ExpiresAt, nil
	}
	req := a.req // the denial of a cost above the limit has no ExpiresAt
	req.Cost = 1
	res, err := a.strategy.peeker.Peek(ctx, &req)
	if err != nil {
		return time.Time{}, err
	}
	if a.limit.Algorithm == FixedWindow {
		a.res.ExpiresAt = res.ExpiresAt // a fixed window has the same end for every cost
	}
	return res.ExpiresAt, nil
}

// fill raises the count to the given number. It tries again when concurrent requests change the
// count.
func (a *ask) fill(ctx context.Context, to uint64) error {
	req := a.req
	req.Limit = to
	for used := a.used; used < to; {
		req.Cost = to - used
		var res weir.Result
		if err := a.strategy.run(ctx, &req, &res); err != nil {
			return err
		}
		if !res.Allowed() {
			used = max(used+1, res.TotalRequests)
			continue
		}
		if a.limit.Algorithm == FixedWindow && res.ExpiresAt.After(a.res.ExpiresAt) {
			return a.strategy.refunder.Refund(ctx, &req, &res) // a new window has begun
		}
		return nil
	}
	return nil
}

// refund returns a's hits to its count, but at most as many as are counted.
func (a *ask) refund(ctx context.Context, now time.Time) error {
	taken, err := a.lastTaken(ctx, now)
	if err != nil {
		return err
	}
	req := a.req
	req.Limit = max(req.Limit, req.Cost) // a strategy refuses to refund more than the limit
	if a.limit.Algorithm == TokenBucket {
		req.Limit = a.req.Limit
		req.Cost = min(req.Cost, a.limit.capacity())
	}
	switch log, ok := a.strategy.Strategy.(entries); {
	case ok:
		err = a.refundEntries(ctx, log, req)
	case a.limit.Algorithm == SlidingLog:
		err = fmt.Errorf("rules: a %T lists no entries to give back: %w", a.strategy.Strategy,
			errors.ErrUnsupported)
	case taken.Allowed():
		err = a.strategy.refunder.Refund(ctx, &req, taken)
	}
	a.req.Cost = 1
	err = errors.Join(err, a.peek(ctx))
	a.over = false
	return err
}

// lastTaken returns a Result of the current period, for Refund.
func (a *ask) lastTaken(ctx context.Context, now time.Time) (*weir.Result, error) {
	if a.limit.Algorithm == TokenBucket {
		return &weir.Result{State: weir.Allow, ExpiresAt: now.Add(maxPeriod)}, nil
	}
	req := a.req
	req.Cost, req.Limit = 1, ample
	return a.strategy.peeker.Peek(ctx, &req)
}

// entries is implemented by sliding logs.
type entries interface {
	Entries(ctx context.Context, r *weir.Request) ([]weir.Entry, error)
}

// refundEntries refunds a's hits to a log, the newest entries first.
func (a *ask) refundEntries(ctx context.Context, log entries, req weir.Request) error {
	hits, err := log.Entries(ctx, &req)
	left := req.Cost
	for i := len(hits) - 1; err == nil && i >= 0 && left > 0; i-- {
		req.Cost = min(left, hits[i].Cost)
		left -= req.Cost
		err = a.strategy.refunder.Refund(ctx, &req, &weir.Result{
			State: weir.Allow, ExpiresAt: hits[i].At.Add(req.Duration),
		})
	}
	return err
}
