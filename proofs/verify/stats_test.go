package verify

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// While hits of a high cost are under way, Stats shows at most what was admitted: it would keep
// more.
func TestStatsLeaveOutTheCostOfHitsUnderWay(t *testing.T) {
	for name, of := range map[string]func(*weir.Limiter) weir.Strategy{
		"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"Counter":       func(l *weir.Limiter) weir.Strategy { return l.Counter() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, weir.Config{})
			s := of(l)
			var begun atomic.Uint64
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() {
					r := &weir.Request{Key: "a", Limit: 1 << 47, Duration: 24 * time.Hour, Cost: 1 << 29}
					for range slow.N(1000, 10_000, 80_000) {
						begun.Add(1)
						res, err := s.Run(context.Background(), r)
						assert.True(t, err == nil && res.Allowed())
					}
				})
			}
			done := make(chan struct{})
			go func() { defer close(done); callers.Wait() }()
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
				}
				shown := l.Stats().Allowed
				if !assert.LessOrEqual(t, shown, begun.Load()) {
					break
				}
			}
			<-done
			require.Equal(t, begun.Load(), l.Stats().Allowed)
		})
	}
}
