package pages

import (
	"context"
	"sync/atomic"
	"time"
)

// Ticking returns a clock that moves every step, until ctx ends: close the Limiter before that.
func Ticking(ctx context.Context, step time.Duration) func() time.Time {
	var now atomic.Pointer[time.Time]
	start := time.Now()
	now.Store(&start)
	go func() {
		ticks := time.NewTicker(step)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				t := start.Add(time.Since(start)) // the wall clock may be set
				now.Store(&t)
			}
		}
	}()
	return func() time.Time { return *now.Load() }
}
