package rules

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// ample is a limit that no count reaches. Windows do not keep a limit with their counts, so a
// request with this one reads and raises the same count.
const ample = 1 << 40

// raises reports whether a, which is over, is to raise its count over the limit.
func (a *ask) raises() bool {
	return a.mode == take && a.used <= a.limit.capacity() &&
		(a.limit.Algorithm == FixedWindow || a.req.Cost > 1)
}

// raise makes the count one more than the limit, so that a peek is over too. It does nothing once
// the window in which a was over has ended.
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
		return nil // a bucket holds no more than its burst
	}
	return a.fill(ctx, to)
}

// until returns when the period ends in which a was over.
func (a *ask) until(ctx context.Context) (time.Time, error) {
	if !a.res.ExpiresAt.IsZero() {
		return a.res.ExpiresAt, nil
	}
	req := a.req // its cost is above the limit, so that it has no end
	req.Cost = 1
	res, err := a.strategy.peeker.Peek(ctx, &req)
	if err != nil {
		return time.Time{}, err
	}
	if a.limit.Algorithm == FixedWindow {
		a.res.ExpiresAt = res.ExpiresAt // of a fixed window the end is the same for every cost
	}
	return res.ExpiresAt, nil
}

// fill asks for what the count lacks of to, as often as others change it meanwhile.
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

// refund returns the hits of a to its count, as far as there are so many.
func (a *ask) refund(ctx context.Context, now time.Time) error {
	taken, err := a.lastTaken(ctx, now)
	if err != nil {
		return err
	}
	req := a.req
	req.Limit = max(req.Limit, req.Cost) // what costs more than the limit cannot have been taken
	if a.limit.Algorithm == TokenBucket {
		req.Limit = a.req.Limit
		req.Cost = min(req.Cost, a.limit.capacity())
	}
	if log, ok := a.strategy.Strategy.(entries); ok {
		err = a.refundEntries(ctx, log, req)
	} else if taken.Allowed() {
		err = a.strategy.refunder.Refund(ctx, &req, taken)
	}
	if err != nil {
		return err
	}
	a.req.Cost = 1
	err = a.peek(ctx)
	a.over = false
	return err
}

// lastTaken returns a Result that speaks of the running period.
func (a *ask) lastTaken(ctx context.Context, now time.Time) (*weir.Result, error) {
	if a.limit.Algorithm == TokenBucket {
		return &weir.Result{State: weir.Allow, ExpiresAt: now.Add(maxPeriod)}, nil
	}
	req := a.req
	req.Cost, req.Limit = 1, ample
	return a.strategy.peeker.Peek(ctx, &req)
}

// entries is what a log of hits offers.
type entries interface {
	Entries(ctx context.Context, r *weir.Request) ([]weir.Entry, error)
}

// refundEntries returns hits to a log, the newest first.
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
