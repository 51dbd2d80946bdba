package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
)

// sourceRules have periods of years, so that none ends during the test.
var sourceRules = map[rules.Algorithm]string{
	rules.FixedWindow: `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 30}}
  - {key: s, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 5}}
`,
	rules.TokenBucket: `
domain: d
descriptors:
  - {key: a, metadata: {weir: {algorithm: token_bucket, burst: 20}}, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: b, metadata: {weir: {algorithm: token_bucket, burst: 30}}, rate_limit: {unit: year, requests_per_unit: 9}}
`,
	rules.SlidingLog: `
domain: d
descriptors:
  - {key: a, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: b, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: year, requests_per_unit: 30}}
`,
	rules.SlidingWindow: `
domain: d
descriptors:
  - {key: a, metadata: {weir: {algorithm: sliding_window}}, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: b, metadata: {weir: {algorithm: sliding_window}}, rate_limit: {unit: year, requests_per_unit: 30}}
`,
}

// TestRulesDecideAlikeEverywhere sends the same requests to engines in process, on Redis, and on a
// fallback between both.
func TestRulesDecideAlikeEverywhere(t *testing.T) {
	server := redistest.Start(t)
	alone, withFallback := onRedis(t, server.Addr, nil)
	sources := map[string]rules.Strategies{"Redis": alone, "fallback": withFallback}
	for algorithm, text := range sourceRules {
		t.Run(algorithm.String(), func(t *testing.T) {
			var want []string
			for _, name := range []string{"in process", "Redis", "fallback"} {
				if name == "fallback" && algorithm == rules.SlidingLog {
					continue // a fallback cannot refund to a log
				}
				server.Do("FLUSHALL")
				engine, err := rules.New(rulesOf(t, text), rules.Config{Strategies: sources[name]})
				require.NoError(t, err)
				got := trace(t, engine)
				require.NoError(t, engine.Close())
				if want == nil {
					want = got
				}
				require.Equal(t, want, got, name)
			}
		})
	}
}

// onRedis returns the strategies of a Redis, and those with a fallback to this process.
func onRedis(
	t *testing.T, addr string, now func() time.Time,
) (alone, withFallback rules.Strategies) {
	o := redislimit.Options(addr)
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Second, time.Second, time.Second
	client := redis.NewClient(o)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	store, err := redislimit.New(client, redislimit.Config{Now: now, Timeout: time.Second})
	require.NoError(t, err)
	limiter, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	alone, local := rules.StrategiesOf(store), rules.StrategiesOf(limiter)
	return alone, func(m rules.Method) (weir.Strategy, error) {
		primary, err := alone(m)
		require.NoError(t, err)
		behind, err := local(m)
		require.NoError(t, err)
		return fallback.New(primary, behind, fallback.Config{Now: now, Timeout: time.Second})
	}
}

func rulesOf(t testing.TB, text string) *rules.Set {
	set, err := rules.Load(fstest.MapFS{"r.yaml": {Data: []byte(text)}})
	require.NoError(t, err)
	return set
}

// trace decides on the same 200 random requests and returns the responses.
func trace(t *testing.T, engine *rules.Engine) []string {
	random := rand.New(rand.NewPCG(1, 2))
	var answers []string
	for range 200 {
		req := &rules.Request{Domain: "d"}
		for range 1 + random.IntN(3) {
			d := rules.Descriptor{
				Entries: []rules.Entry{{Key: string("absq"[random.IntN(4)]),
					Value: fmt.Sprint(random.IntN(3))}},
				Hits:    uint64(random.IntN(6)),
				HasHits: true,
			}
			if random.IntN(8) == 0 {
				d.GiveBack = true
			}
			if slices.ContainsFunc(req.Descriptors, func(other rules.Descriptor) bool {
				return slices.Equal(other.Entries, d.Entries)
			}) {
				continue // in one round trip each of two has counted the other when it is denied
			}
			req.Descriptors = append(req.Descriptors, d)
		}
		resp, err := engine.Decide(context.Background(), req)
		require.NoError(t, err)
		require.NoError(t, resp.Lost)
		answer := resp.Code()
		for _, s := range resp.Statuses {
			answer += fmt.Sprint(" ", s.Code(), " ", s.Remaining)
		}
		answers = append(answers, answer)
	}
	return answers
}
