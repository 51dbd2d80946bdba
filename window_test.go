package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After the last representable instant the clock stands still, and counts remain.
func TestNothingExpiresAfterTheLastInstant(t *testing.T) {
	l := MustNew(t, Config{Timeout: 1,
		Now: func() time.Time { return time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }})
	tiers := MustTiers(t, l, Tier{1, time.Second})
	for name, s := range map[string]Strategy{"log": l.SlidingLog(), "queue": l.LeakyBucket(0),
		"tiers": tiers} {
		l.Sweep() // there are no states
		r := &Request{Key: name, Limit: 1, Duration: 10 * time.Millisecond}
		for i := range 3 {
			res := MustPeek(t, s, r)
			require.Equal(t, i == 0, res.Allowed(), name)
			if i == 0 {
				require.NoError(t, ops.Charge(t.Context(), s, r))
			}
			l.Sweep()
		}
	}
	for i := range 3 {
		res := MustCheck(t, l, "id", 1000, 1)
		require.Equal(t, i == 0, res.Allowed())
		l.Sweep()
	}
}
