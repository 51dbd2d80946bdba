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

// pipelining returns a client that joins the commands of concurrent calls.
func pipelining(t testing.TB, c *redis.Client) redis.UniversalClient {
	pipe, err := c.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	return pipe
}

// The recipe of docs/machines.md with 64 callers on one AutoPipeline admits exactly the limit.
func TestAutoPipeline(t *testing.T) {
	slow.Test(t)
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	plain := storeOn(t, client, redislimit.Config{Timeout: generous})
	joined := storeOn(t, pipelining(t, client),
		redislimit.Config{Timeout: generous, AllowUnsafeClient: true})
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
