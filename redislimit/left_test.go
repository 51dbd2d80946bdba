package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// Left is the largest cost that is admitted, on Redis too: after an admission, after a denial, and
// before a hit that is peeked at.
func TestLeftIsTheLargestCostThatIsAdmitted(t *testing.T) {
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Timeout: generous})
	tiers := store.Tiers(weir.Tier{Limit: 5, Duration: time.Hour},
		weir.Tier{Limit: 7, Duration: 24 * time.Hour}, weir.Tier{Limit: 9, Duration: 48 * time.Hour})
	m := tiers.Limit()
	for name, m := range map[string]interface {
		Peek(ctx context.Context, key string) (weir.Outcome, error)
		Take(ctx context.Context, key string, cost uint64) (weir.Outcome, error)
	}{
		"FixedWindow":   store.FixedWindow().Limit(5, 24*time.Hour),
		"SlidingWindow": store.SlidingWindow().Limit(5, 24*time.Hour),
		"SlidingLog":    store.SlidingLog().Limit(5, 24*time.Hour),
		"TokenBucket":   store.TokenBucket(5).Limit(1, 24*time.Hour),
		"Tiers":         m,
		"All":           limits.All(m.Named("all"), store.SlidingLog().Limit(8, 24*time.Hour)),
	} {
		left := uint64(5)
		for _, cost := range []uint64{50, 3, 3, 8, 1, 1, 1, 2} {
			before, err := m.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.Equal(t, []uint64{left, 5 - left}, []uint64{before.Left, before.TotalRequests}, name)
			out, err := m.Take(t.Context(), "k", cost)
			require.NoError(t, err)
			require.Equal(t, cost <= left, out.Allowed(), name)
			if out.Allowed() {
				left -= cost
			}
			assert.Equal(t, left, out.Left, "%s: %v of %d", name, out.State, cost)
		}
	}
}
