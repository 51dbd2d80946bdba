package redislimit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// With a hit in every second of a day and a half, Tiers of 1 s and 24 h keep a bounded number of
// slices, and a decision costs the server a bounded time. They admit no more than exact tiers
// would, and nearly as much.
func TestTiersAreBounded(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, server.Addr,
		redislimit.Config{Now: clock.Now, Timeout: generous, AllowUnsafeClient: true,
			Grace: 400 * 24 * time.Hour})
	const limit = 20_000
	tiers := store.Tiers(weir.Tier{Limit: 10, Duration: time.Second},
		weir.Tier{Limit: limit, Duration: 24 * time.Hour})
	rng := rand.New(rand.NewPCG(13, 13))
	steps := slow.N(1_100, 3_000, 130_000)
	step := 36 * time.Hour / time.Duration(steps)
	var hits []time.Time // within the last 24 h
	fields, fullest := int64(0), 0
	for n := range steps {
		clock.Advance(step/2 + time.Duration(rng.Int64N(int64(step))))
		r := &weir.Request{Key: "a", Cost: uint64(1 + rng.IntN(5))}
		res := mustRun(t, tiers, r)
		now := clock.Now()
		for len(hits) > 0 && !hits[0].After(now.Add(-24*time.Hour+time.Second)) {
			hits = hits[1:]
		}
		if res.Allowed() {
			for range r.Cost {
				hits = append(hits, now)
			}
		}
		require.LessOrEqual(t, len(hits), limit, "admitted within 24 h minus one slice")
		fullest = max(fullest, len(hits))
		if n%100 == 0 {
			fields = max(fields, client.HLen(t.Context(), "weir:tiers:1000-86400000:{a}").Val())
		}
	}
	assert.LessOrEqual(t, fields, int64(500))
	if 3*steps > 2*limit {
		assert.Greater(t, fullest, limit*9/10, "nearly the limit is admitted")
	}
	client.ConfigResetStat(t.Context())
	for range 100 {
		mustRun(t, tiers, &weir.Request{Key: "a"})
	}
	stats := client.Info(t.Context(), "commandstats").Val()
	var calls, usec int
	var each float64
	for _, line := range strings.Split(stats, "\r\n") {
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,usec=%d,usec_per_call=%f", &calls, &usec,
			&each); err == nil {
			t.Logf("%d slices, %.0f µs of the server's time a decision", fields, each)
			assert.Less(t, each, 5_000.0, "without the bound it is 50 ms")
		}
	}
	assert.NotZero(t, calls)
	size := client.MemoryUsage(t.Context(), "weir:tiers:1000-86400000:{a}").Val()
	assert.Less(t, size, int64(100_000))
	lives(t, server)
}

// A process with the same tiers in another order counts under the same key, with its own limits.
func TestTiersInAnotherOrderCountTogether(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now, Timeout: generous})
	hour, day := tier(3, 3600), tier(5, 24*3600)
	one := store.Tiers(hour, day)
	other := store.Tiers(day, hour)
	for n, s := range []*redislimit.Tiers{one, other, one} {
		res := mustRun(t, s, &weir.Request{Key: "a"})
		assert.True(t, res.Allowed())
		assert.EqualValues(t, n+1, res.TotalRequests)
		assert.Equal(t, hour.Limit, res.Limit, "the hour has the least room")
	}
	out, err := other.Limit().Take(t.Context(), "b", 1)
	require.NoError(t, err)
	assert.Equal(t, hour.Limit-1, out.Left)
	assert.Equal(t, "tiers, 3 in 1h", out.By.String())
	res := mustRun(t, other, &weir.Request{Key: "a"})
	assert.False(t, res.Allowed())
	assert.Equal(t, hour.Limit, res.Limit)
}
