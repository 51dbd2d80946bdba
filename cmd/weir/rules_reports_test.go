package main

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/weirtest"
)

// reports is an engine for costs that are known afterwards, whose clock is set.
type reports struct {
	*testing.T
	engine *rules.Engine
	clock  *weirtest.Clock
}

// call peeks at the limits of keys and, if it is admitted, reports a cost on them.
func (r *reports) call(cost uint64, keys ...string) (passed bool) {
	for _, hits := range []uint64{0, cost} {
		req := &rules.Request{Domain: "d"}
		for _, key := range keys {
			req.Descriptors = append(req.Descriptors, rules.Descriptor{
				Entries: []rules.Entry{{Key: key, Value: "x"}}, Hits: hits, HasHits: true})
		}
		resp, err := r.engine.Decide(context.Background(), req)
		require.NoError(r, err)
		require.NoError(r, resp.Lost)
		if hits == 0 && !resp.Allowed() {
			return false
		}
	}
	return true
}

// Reports hold their limits on Redis, behind a fallback, and in an outage, with every algorithm.
func TestReportsHoldTheLimitEverywhere(t *testing.T) {
	server := redistest.Start(t)
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log",
		"token_bucket"} {
		for _, where := range []string{"Redis", "fallback", "outage"} {
			t.Run(algorithm+" "+where, func(t *testing.T) {
				server.Do("FLUSHALL")
				r := &reports{T: t, clock: weirtest.NewClock(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))}
				addr := server.Addr
				if where == "outage" {
					addr = "127.0.0.1:1"
				}
				source, withFallback := onRedis(t, addr, r.clock.Now)
				if where != "Redis" {
					source = withFallback
				}
				var err error
				own := fmt.Sprintf("metadata: {weir: {costs: afterwards, algorithm: %s}}", algorithm)
				r.engine, err = rules.New(rulesOf(t, fmt.Sprintf(`
domain: d
descriptors:
  - {key: second, %[1]s, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: day, %[1]s, rate_limit: {unit: day, requests_per_unit: 10000}}
  - {key: minute, %[1]s, rate_limit: {unit: minute, requests_per_unit: 100000}}
`, own)), rules.Config{Strategies: source, Now: r.clock.Now})
				require.NoError(t, err)
				defer r.engine.Close()

				passed := 0
				for range 6 {
					r.clock.Advance(time.Minute)
					if r.call(5000, "second", "day") {
						passed++
					}
				}
				assert.Equal(t, 3, passed, "5,000 of 10,000 a day each, the third over it")

				used := 0
				for range 600 { // ten minutes
					r.clock.Advance(time.Second)
					if r.call(5000, "minute") {
						used += 5000
					}
				}
				assert.LessOrEqual(t, used, 11*105_000)
				assert.GreaterOrEqual(t, used, 8*100_000)
			})
		}
	}
}

// Hits are given back whatever the count is, also if it is the highest that Redis holds.
func TestHitsOfAnyCountAreGivenBackOnRedis(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 7, 1, 12, 0, 20, 0, time.UTC)
	clock := func() time.Time { return now }
	alone, _ := onRedis(t, server.Addr, clock)
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log"} {
		engine, err := rules.New(rulesOf(t, fmt.Sprintf(`
domain: d
descriptors:
  - key: k
    metadata: {weir: {costs: afterwards, algorithm: %s}}
    rate_limit: {unit: minute, requests_per_unit: 10}
`, algorithm)), rules.Config{Strategies: alone, Now: clock})
		require.NoError(t, err)
		defer engine.Close()
		for _, n := range []uint64{1 << 40, 1 << 53, math.MaxUint64} {
			req := &rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
				{Entries: []rules.Entry{{Key: "k", Value: algorithm}}, Hits: n, HasHits: true}}}
			var resp *rules.Response
			for _, req.Descriptors[0].GiveBack = range []bool{false, true} {
				resp, err = engine.Decide(context.Background(), req)
				require.NoError(t, err)
				require.NoError(t, resp.Lost)
			}
			assert.EqualValues(t, 10, resp.Statuses[0].Remaining, "%s %d", algorithm, n)
		}
	}
}
