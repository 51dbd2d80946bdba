package redislimit_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
)

// A Fallback of a strategy here is one of its counterpart in process, and of no other one.
func TestAFallbackIsOfCounterparts(t *testing.T) {
	client := redis.NewClient(redislimit.Options("127.0.0.1:1")) // which is not called
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{})
	require.NoError(t, err)
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	day := weir.Tier{Limit: 10, Duration: 24 * time.Hour}
	tiers := store.Tiers(day)
	own := limiter.Tiers(day)
	pairs := map[string][2]weir.Strategy{
		"FixedWindow":   {store.FixedWindow(), limiter.FixedWindow()},
		"SlidingWindow": {store.SlidingWindow(), limiter.SlidingWindow()},
		"SlidingLog":    {store.SlidingLog(), limiter.SlidingLog()},
		"TokenBucket":   {store.TokenBucket(5), limiter.TokenBucket(5)},
		"Tiers":         {tiers, own},
		"Calendar":      {store.Calendar(weir.Day, nil), limiter.Calendar(weir.Day, nil)},
		"InFlight":      {store.InFlight(), limiter.InFlight()},
		"Counter": {redislimit.NewCounterStrategy(client, time.Now),
			weir.NewCounterStrategy(limiter)},
		"SortedSet": {redislimit.NewSortedSetCounterStrategy(client, time.Now),
			weir.NewSortedSetCounterStrategy(limiter)},
	}
	logs := map[string]bool{"SlidingLog": true, "SortedSet": true}
	for a, p := range pairs {
		for b, l := range pairs {
			_, err := fallback.New(p[0], l[1], fallback.Config{})
			if a == b || logs[a] && logs[b] {
				assert.NoError(t, err, "%s and %s", a, b)
			} else {
				assert.ErrorIs(t, err, fallback.ErrConfig, "%s and %s", a, b)
			}
			_, err = fallback.New(l[1], p[0], fallback.Config{})
			assert.ErrorContains(t, err, "swap them", "%s and %s", a, b)
		}
	}
}
