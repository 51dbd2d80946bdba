package weir

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Seed of a period that is over, before the call or while it is made, counts nothing.
func TestSeedAfterItsPeriodCountsNothing(t *testing.T) {
	start := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	for kind, of := range map[string]func(*Limiter) Strategy{
		"FixedWindow":   func(l *Limiter) Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *Limiter) Strategy { return l.SlidingWindow() },
		"Counter":       func(l *Limiter) Strategy { return l.Counter() },
		"TokenBucket":   func(l *Limiter) Strategy { return l.TokenBucket(0) },
		"SlidingLog":    func(l *Limiter) Strategy { return l.SlidingLog() },
		"List":          func(l *Limiter) Strategy { return l.List() },
		"LeakyBucket":   func(l *Limiter) Strategy { return l.LeakyBucket(2) },
	} {
		for readings := range 2 { // of the clock before the period is over
			var armed atomic.Bool
			var read atomic.Int64
			l := MustNew(t, Config{Now: func() time.Time {
				if armed.Load() && read.Add(1) > int64(readings) {
					return start.Add(61 * time.Second)
				}
				return start
			}})
			s, r := of(l), &Request{Key: "k", Limit: 10, Duration: time.Minute}
			armed.Store(true)
			err := ops.Seed(t.Context(), s, r, &Result{State: Allow, TotalRequests: 7,
				ExpiresAt: start.Add(time.Minute)})
			require.NoError(t, err)
			assert.Zero(t, Counted(t, s, r), "%s, %d readings", kind, readings)
			if readings == 0 {
				assert.Zero(t, l.Stats().Buckets, "%s: nothing is kept", kind)
			}
		}
	}
}
