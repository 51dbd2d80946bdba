package weir

import (
	"context"
	"fmt"
	"time"
)

// Wait asks s for an admission of r until it has one. Denied, it sleeps until the instant that the
// denial names, and asks again. It returns how long that took in all, whatever the outcome.
//
// Its error is that of s, or of ctx if that ends first. If the deadline of ctx is nearer than the
// instant, Wait returns at once with an error that wraps [context.DeadlineExceeded]; a request that
// can never pass gets one that wraps [ErrLimit]. An error counts nothing.
//
// Wait keeps no queue: of several that wait for one key any may be the next, and all ask again at
// the same instant. For an order take [Limiter.LeakyBucket]. It sleeps in real time, so s must not
// be on a clock that is moved by hand, but may be on that of a testing/synctest bubble. Where the
// clock of s is behind, or coarse, Wait asks again after a millisecond, and then twice as long each
// time, until s admits or names a later instant.
func Wait(ctx context.Context, s Strategy, r *Request) (waited time.Duration, err error) {
	start := time.Now()
	var instant time.Time
	pause := time.Millisecond
	for {
		if err := ctx.Err(); err != nil { // s may not look
			return time.Since(start), err
		}
		res, err := s.Run(ctx, r)
		switch {
		case err != nil || res.Allowed():
			return time.Since(start), err
		case res.ExpiresAt.IsZero():
			return time.Since(start), fmt.Errorf("%w: a cost of %d can never pass", ErrLimit, max(1, r.Cost))
		case res.ExpiresAt.After(instant):
			instant, pause = res.ExpiresAt, time.Millisecond
		}
		left := max(pause, time.Until(instant))
		pause *= 2
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < left {
			return time.Since(start), fmt.Errorf("weir: wait of %v: %w", left, context.DeadlineExceeded)
		}
		if err := sleep(ctx, left); err != nil {
			return time.Since(start), err
		}
	}
}

// sleep returns after d, or with the error of ctx as soon as that ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
