package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// A Redis that loses counts while it answers all calls, as after a FLUSHALL, an eviction, or a
// failover to a replica that lacks the last writes, is raised to what the instances knew. Each
// instance notices by one call. A count that another instance has reset is not raised.
func TestRedisLosesCountsWithoutAFailedCall(t *testing.T) {
	const limit = 100
	server := redistest.Start(t)
	client := server.Client()
	flush := func(ctx context.Context, _ []*fallback.Fallback, _ *weir.Request) error {
		return client.FlushAll(ctx).Err()
	}
	// dumps holds the keys of a replica that is late.
	dumps := map[string]string{}
	for name, row := range map[string]struct {
		instances, admit int
		lose             func(context.Context, []*fallback.Fallback, *weir.Request) error
		most             int // admitted, of a limit of 100
		losses           uint64
	}{
		"FLUSHALL":              {1, 60, flush, limit + 1, 1},
		"FLUSHALL, full":        {1, 100, flush, limit + 1, 1},
		"FLUSHALL, 3 instances": {3, 99, flush, limit + 6, 3},
		"to an empty replica":   {1, 80, flush, limit + 1, 1},
		"an eviction": {1, 90, func(ctx context.Context, _ []*fallback.Fallback, _ *weir.Request) error {
			key, err := client.RandomKey(ctx).Result()
			if err != nil {
				return err
			}
			return client.Del(ctx, key).Err()
		}, limit + 1, 1},
		"to a late replica": {2, 100, func(ctx context.Context, _ []*fallback.Fallback, _ *weir.Request) error {
			for key, dump := range dumps {
				if err := client.RestoreReplace(ctx, key, 0, dump).Err(); err != nil {
					return err
				}
			}
			return nil
		}, limit + 4, 2},
		"a reset elsewhere": {2, 100, func(ctx context.Context, all []*fallback.Fallback, r *weir.Request) error {
			return ops.Reset(ctx, all[1], r)
		}, 2 * limit, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			clear(dumps)
			var all []*fallback.Fallback
			for range row.instances {
				all = append(all, hybridAt(t, server.Addr, fallback.Config{
					Instances: row.instances, Timeout: 10 * time.Second, ProbeTimeout: time.Minute,
				}))
			}
			admitted := 0
			r := weir.Request{Key: "a", Limit: limit, Duration: 24 * time.Hour}
			take := func(n int) {
				for i := range n {
					res, by := ask(t, all[i%len(all)], r)
					require.Equal(t, weir.FromPrimary, by)
					if res.Allowed() {
						admitted++
					}
					if admitted == 60 {
						keep(t, client, dumps)
					}
				}
			}
			take(row.admit)
			require.NoError(t, row.lose(t.Context(), all, &r))
			take(3 * limit)
			losses := uint64(0)
			for _, f := range all {
				s := f.Stats()
				losses += s.Losses
				assert.Zero(t, s.Failures)
			}
			t.Logf("%d admitted", admitted)
			assert.LessOrEqual(t, admitted, row.most)
			assert.Equal(t, row.losses, losses)
		})
	}
}

// keep stores the keys of a server as they are.
func keep(t *testing.T, c *redis.Client, dumps map[string]string) {
	keys, err := c.Keys(t.Context(), redislimit.DefaultPrefix+"*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		dumps[key], err = c.Dump(t.Context(), key).Result()
		require.NoError(t, err)
	}
}
