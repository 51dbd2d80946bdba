package redislimit_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// TestMemoryOfACaller holds what a caller takes of the server's memory, of which docs/scaling.md has the figures.
func TestMemoryOfACaller(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	client := redis.NewClient(redislimit.Options(server.Addr))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{Timeout: 10 * time.Second})
	require.NoError(t, err)
	used := func() int {
		n, err := strconv.Atoi(server.Info("used_memory"))
		require.NoError(t, err)
		return n
	}
	callers := slow.N(0, 16_384, 1<<20)
	for name, s := range map[string]struct {
		weir.Strategy
		most int
	}{
		"fixed window": {store.FixedWindow(), 230}, "sliding window": {store.SlidingWindow(), 270},
		"token bucket": {store.TokenBucket(0), 250},
	} {
		server.Do("FLUSHALL")
		before := used()
		var g errgroup.Group
		g.SetLimit(32)
		for i := range callers {
			g.Go(func() error {
				_, err := s.Run(t.Context(), &weir.Request{Key: fmt.Sprintf("198.51.100.%d", i), Limit: 100, Duration: time.Hour})
				return err
			})
		}
		require.NoError(t, g.Wait())
		bytes := float64(used()-before) / float64(callers)
		t.Logf("%s: %.0f bytes a caller", name, bytes)
		assert.Less(t, bytes, float64(s.most), name)
		assert.Greater(t, bytes, 50.0, name)
	}
}
