package redislimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// The recipe of docs/redis.md with 64 callers on one AutoPipeline admits exactly the limit.
func TestAutoPipeline(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	client := redis.NewClient(redislimit.Options(server.Addr))
	t.Cleanup(func() { _ = client.Close() })
	pipe, err := client.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	plain, err := redislimit.New(client, redislimit.Config{Timeout: generous})
	require.NoError(t, err)
	joined, err := redislimit.New(pipe, redislimit.Config{Timeout: generous, AllowUnsafeClient: true})
	require.NoError(t, err)
	for name, s := range map[string]*redislimit.Strategy{"plain": plain.FixedWindow(),
		"joined": joined.FixedWindow()} {
		var admitted, asked atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range 64 {
			all.Go(func() {
				for asked.Add(1) <= 5000 {
					res, err := s.Run(context.Background(),
						&weir.Request{Key: name, Limit: 3000, Duration: 24 * time.Hour})
					if assert.NoError(t, err) && res.Allowed() {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%s: %.0f decisions a second", name, 5000/time.Since(start).Seconds())
		assert.EqualValues(t, 3000, admitted.Load(), name)
	}
}
