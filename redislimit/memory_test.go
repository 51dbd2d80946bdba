package redislimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// TestMemoryOfACaller measures the memory of a key as reported by the server.
// proofs/fleet/RESULTS.md has the figures.
func TestMemoryOfACaller(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	for name, s := range map[string]struct {
		weir.Strategy
		most int64
	}{
		"fixed window":   {store.FixedWindow(), 160},
		"sliding window": {store.SlidingWindow(), 160},
		"token bucket":   {store.TokenBucket(0), 160},
	} {
		server.Do("flushall")
		for range 2 {
			_, err := s.Run(t.Context(),
				&weir.Request{Key: "198.51.100.100", Limit: 100, Duration: time.Hour})
			require.NoError(t, err)
		}
		keys := server.Do("keys", "*").([]any)
		require.Len(t, keys, 1, name)
		bytes := server.Do("memory", "usage", keys[0]).(int64)
		t.Logf("%s: %d bytes a caller", name, bytes)
		assert.LessOrEqual(t, bytes, s.most, name)
	}
}

// TestMemoryOfSlices measures Tiers with a resolution: 100 slices and the current one, as in 10 s
// by the tenth of a second, in the time of 1 s by the hundredth.
func TestMemoryOfSlices(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	tiers := store.Tiers(weir.Tier{Limit: 1e6, Duration: time.Second})
	tiers = tiers.Resolution(10 * time.Millisecond)
	var slices, bytes int64
	redistest.Eventually(t, time.Minute, "most slices have a hit", func() bool {
		_, err := tiers.Run(t.Context(), &weir.Request{Key: "198.51.100.100"})
		keys := server.Do("keys", "*").([]any)
		if err != nil || len(keys) == 0 {
			return false
		}
		slices, bytes = server.Do("hlen", keys[0]).(int64), server.Do("memory", "usage", keys[0]).(int64)
		return slices > 50
	})
	t.Logf("%d bytes, %d slices", bytes, slices)
	assert.LessOrEqual(t, slices, int64(101))
	assert.LessOrEqual(t, bytes, int64(1600))
}
