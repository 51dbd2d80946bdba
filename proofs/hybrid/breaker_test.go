package hybrid_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// closingServer returns an address that accepts connections and closes them.
func closingServer(t *testing.T) (addr string, dials *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	dials = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = c.Close()
		}
	}()
	return l.Addr().String(), dials
}

// While the breaker is open, primary sees one dial in each interval, and callers are not delayed.
func TestOpenBreakerDialsOncePerInterval(t *testing.T) {
	slow.Test(t)
	addr, dials := closingServer(t)
	h := hybridAt(t, addr, fallback.Config{ProbeInterval: probeInterval})
	for h.Stats().State == fallback.Closed {
		ask(t, h, day)
	}
	opened := h.Stats()
	dials.Store(0)
	var took []time.Duration
	start := time.Now()
	for len(took) < 100_000 || time.Since(start) < 4*probeInterval {
		before := time.Now()
		_, by := ask(t, h, day)
		took = append(took, time.Since(before))
		require.Equal(t, weir.FromLocal, by)
	}
	intervals := int64(time.Since(start)/probeInterval) + 1
	p99 := quantile(took, 0.99)
	t.Logf("%d decisions in %v: %d dials; p50 %v, p99 %v", len(took),
		time.Since(start).Round(time.Millisecond),
		dials.Load(),
		quantile(took, 0.5), p99)
	assert.LessOrEqual(t, dials.Load(), intervals)
	assert.Positive(t, dials.Load())
	if !slow.Race {
		assert.LessOrEqual(t, p99, 5*time.Microsecond)
	}

	dials.Store(0)
	start = time.Now()
	for time.Since(start) < 2*probeInterval {
		out, _ := callAll(h, day, callers)
		_, by := slowest(t, out)
		assert.Equal(t, map[weir.Source]int{weir.FromLocal: callers}, by)
	}
	assert.LessOrEqual(t, dials.Load(), int64(time.Since(start)/probeInterval)+1)
	assert.LessOrEqual(t, h.Stats().Failures-opened.Failures, h.Stats().Probes-opened.Probes)
}
