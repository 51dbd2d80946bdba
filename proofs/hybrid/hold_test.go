package hybrid_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// holders are instances with one server that hold work in flight.
type holders struct {
	store     *redislimit.InFlight
	instances []*fallback.Fallback
	held      [][]*weir.Held // by instance
}

var streams = weir.Request{Key: "a", Limit: 10, Duration: 6 * time.Second}

func newHolders(t *testing.T, addr string, n, shares int) *holders {
	t.Helper()
	const timeout = 10 * time.Second // slow machines must not cause failures
	h := &holders{held: make([][]*weir.Held, n)}
	for range n {
		l := newLimiter(t, nil)
		s := storeAt(t, addr, redislimit.Config{Timeout: timeout})
		h.store = s.InFlight()
		f := newFallback(t, s.InFlight(), l.InFlight(), fallback.Config{
			Instances: shares, IsDown: isDown, MinCalls: 1, Stall: -1, ProbeInterval: 20 * time.Millisecond,
			Timeout: timeout, ProbeTimeout: timeout,
		})
		h.instances = append(h.instances, f)
	}
	return h
}

// hold holds what instance i may, n at most, and returns how much that is.
func (h *holders) hold(t *testing.T, i, n int) (held int) {
	t.Helper()
	for range n {
		p, err := weir.Hold(t.Context(), h.instances[i], &streams)
		if err != nil {
			var denied *weir.DeniedError
			require.ErrorAs(t, err, &denied)
			return held
		}
		h.held[i] = append(h.held[i], p)
		held++
	}
	return held
}

// places returns how many places are held, and how many are lost.
func (h *holders) places() (held, lost int) {
	for _, of := range h.held {
		for _, p := range of {
			select {
			case <-p.Lost():
				lost++
			default:
				held++
			}
		}
	}
	return held, lost
}

// onServer returns how many places the server knows, or -1.
func (h *holders) onServer(t *testing.T) int {
	r := streams
	r.Limit = 1 << 20
	res, err := ops.Peek(t.Context(), h.store, &r)
	if err != nil {
		return -1
	}
	return int(res.TotalRequests) - 1
}

// A server that stops while work is in flight: each instance goes on with what it holds, and up to
// its share. When the server is back, with nothing stored, it knows of all places again, up to the
// limit; what it has no room for is lost. Never are more in flight than the limit and the shares of
// the other instances. The negative control, instances that take the whole limit for their share,
// has more.
func TestWorkInFlightThroughAnOutage(t *testing.T) {
	const limit, instances = 10, 2
	const bound = limit + (instances-1)*limit/instances
	for _, row := range []struct {
		name                 string
		shares, first, other int // what the instances hold in the outage beside 8 and 2
	}{
		{"shares", instances, 0, 3},
		{"the negative control", 1, 2, 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := redistest.Start(t)
			h := newHolders(t, server.Addr, instances, row.shares)
			require.Equal(t, 8, h.hold(t, 0, 8))
			require.Equal(t, 2, h.hold(t, 1, 20), "the limit is reached")
			require.Equal(t, limit, h.onServer(t))

			server.Kill()
			assert.Equal(t, row.first, h.hold(t, 0, 20))
			assert.Equal(t, row.other, h.hold(t, 1, 20))
			held, lost := h.places()
			assert.Zero(t, lost, "what is in flight goes on")
			assert.Equal(t, row.shares == instances, held <= bound, "%d are in flight", held)
			if row.shares != instances {
				return
			}
			for _, p := range h.held[1][:1] { // one ends in the outage
				require.NoError(t, p.Release(t.Context()))
			}
			h.held[1] = h.held[1][1:]
			assert.Equal(t, 1, h.hold(t, 1, 20), "and another one has its place")

			server.Restart()
			require.Eventually(t, func() bool {
				held, lost = h.places()
				return held == limit && h.onServer(t) == limit
			}, time.Minute, 10*time.Millisecond, "the server knows of them again")
			assert.Equal(t, 3, lost)
			assert.Zero(t, h.hold(t, 0, 1)+h.hold(t, 1, 1), "there is no room")
			for _, of := range h.held {
				for _, p := range of {
					assert.NoError(t, p.Release(t.Context()))
				}
			}
			assert.Zero(t, h.onServer(t), "nothing is held in the end")
			h.held = make([][]*weir.Held, instances)
			assert.Equal(t, limit, h.hold(t, 1, 20))
		})
	}
}
