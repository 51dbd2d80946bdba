package xrate

import (
	"context"
	"time"
)

// Flow is a flowcontrol.RateLimiter of k8s.io/client-go, for rest.Config.RateLimiter:
//
//	config.RateLimiter = xrate.NewFlow(lim)
//
// Make one with [NewFlow]. It is safe for concurrent use.
type Flow struct {
	limiter Waiter
	ctx     context.Context // ended by stop
	stop    context.CancelFunc
}

// Waiter is a [Limiter] or a [Bucket].
type Waiter interface {
	Allow() bool
	Wait(ctx context.Context) error
	Limit() float64
}

// NewFlow returns a Flow on l.
func NewFlow(l Waiter) *Flow {
	ctx, stop := context.WithCancel(context.Background())
	return &Flow{l, ctx, stop}
}

// TryAccept reports whether an event may happen now; false after Stop.
func (f *Flow) TryAccept() bool { return f.ctx.Err() == nil && f.limiter.Allow() }

// Accept waits until an event may happen, or until Stop. While a Strategy cannot decide it retries
// every 100 ms, unless it fails open.
func (f *Flow) Accept() {
	for f.limiter.Wait(f.ctx) != nil {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Wait waits until an event may happen, and fails if ctx ends before, or on Stop.
func (f *Flow) Wait(ctx context.Context) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	return f.limiter.Wait(ctx)
}

// Stop ends all waits. client-go's own does nothing.
func (f *Flow) Stop() { f.stop() }

// QPS returns the rate in events per second.
func (f *Flow) QPS() float32 { return float32(f.limiter.Limit()) }
