package weir

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cost over the limit is never admitted, even if both exceed the largest count.
func TestHugeCostsOverHugeLimitsAreDenied(t *testing.T) {
	l := newLimiter(t)
	for name, s := range map[string]Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(), "SlidingLog": l.SlidingLog(),
		"Counter": l.Counter(), "List": l.List(),
	} {
		for _, limit := range []uint64{1 << 48, 1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1} {
			res, err := s.Run(t.Context(),
				&Request{Key: "id", Limit: limit, Duration: time.Second, Cost: limit + 1})
			require.NoError(t, err)
			require.Equal(t, Result{State: Deny}, *res, "%s, %d", name, limit)
		}
	}
}
