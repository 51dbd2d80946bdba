package proxy

import (
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit/redistest"
)

// patient is a timeout longer than a slow disk delays Redis. A killed server refuses connections at
// once.
const patient = 10 * time.Second

// shared returns the Config of one of n proxies on a Redis.
func shared(s *redistest.Server, n int) onredis.Config {
	return onredis.Config{
		URL: "redis://" + s.Addr,
		Fallback: fallback.Config{Instances: n, ProbeInterval: 50 * time.Millisecond, Timeout: patient,
			MinCalls: 1, Stall: -1},
	}
}

// fleet starts n proxies on one Redis.
func fleet(t *testing.T, s *redistest.Server, n int, limit string) []served {
	t.Helper()
	proxies := make([]served, n)
	for i := range proxies {
		cfg := config(t, limit)
		cfg.Redis = shared(s, n)
		proxies[i] = serve(t, cfg)
	}
	return proxies
}

// spend sends n requests to each of the proxies in turn and returns how many were admitted.
func spend(t *testing.T, proxies []served, n int) (admitted int) {
	t.Helper()
	for range n {
		for _, p := range proxies {
			switch code := status(t, "GET", p.front.URL); code {
			case 200:
				admitted++
			case 429:
			default:
				t.Errorf("status %d", code)
			}
		}
	}
	return admitted
}

func sources(proxies []served) (all []string) {
	for _, p := range proxies {
		all = append(all, p.figures().Deciding[0].Source)
	}
	return all
}

// TestTheLimitIsHeldThroughAnOutage checks that two proxies on one Redis share one limit, that they
// keep to it after Redis is killed, continuing from the last counts, and that they add what they
// admitted when Redis is back.
func TestTheLimitIsHeldThroughAnOutage(t *testing.T) {
	for _, limit := range []string{"20/365d:fixed", "20/1d:sliding", "20/1d:log", "20/1d:token",
		"20/1d,30/2d"} {
		t.Run(strings.ReplaceAll(limit, "/", " in "), func(t *testing.T) {
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			proxies := fleet(t, s, 2, limit)
			require.Equal(t, 8, spend(t, proxies, 4))
			require.Equal(t, []string{"redis", "redis"}, sources(proxies))
			why := func() cli.Explained {
				return explained(t, proxies[0], url.Values{"key": {"127.0.0.1"}})
			}
			x := why()
			assert.False(t, x.Alone)
			assert.EqualValues(t, []uint64{8, 12}, []uint64{x.Limits[0].Used, x.Limits[0].Left})

			s.Kill()
			// 12 are left: 6 for each proxy. A single proxy has no more than its share.
			require.Equal(t, 6, spend(t, proxies[:1], 15))
			require.Equal(t, 6, spend(t, proxies[1:], 15))
			require.Equal(t, []string{"local", "local"}, sources(proxies))
			x = why()
			assert.True(t, x.Alone)
			assert.Zero(t, x.Limits[0].Left)
			assert.NotZero(t, x.Limits[0].Passes)
			assert.Zero(t, spend(t, proxies, 5))

			s.Restart()
			late := 0
			require.Eventually(t, func() bool {
				late += spend(t, proxies, 1)
				return fmt.Sprint(sources(proxies)) == "[redis redis]"
			}, 10*time.Second, 20*time.Millisecond)
			// Redis does not know what the other proxy admitted until that proxy calls it:
			// fallback.New states this bound. A breaker may have closed just after its proxy's last
			// call.
			late += spend(t, proxies, 1)
			assert.LessOrEqual(t, late, 10)
			assert.Zero(t, spend(t, proxies, 5), "the limit is used up, also on Redis")
			carried := proxies[0].figures().Deciding[0].Counts["carried_back"] +
				proxies[1].figures().Deciding[0].Counts["carried_back"]
			assert.EqualValues(t, 12, carried)
		})
	}
}

func TestSeveralProxiesAdmitExactlyTheLimitTogether(t *testing.T) {
	s := redistest.Start(t)
	proxies := fleet(t, s, 3, "50/365d:fixed")
	var mu sync.Mutex
	var wg sync.WaitGroup
	admitted := 0
	for _, p := range proxies {
		for range 4 {
			wg.Go(func() {
				n := spend(t, []served{p}, 20)
				mu.Lock()
				defer mu.Unlock()
				admitted += n
			})
		}
	}
	wg.Wait()
	assert.Equal(t, 50, admitted)
}

// TestLeasesAndDenialsSaveRoundTrips checks that leases and cached denials save round trips to
// Redis and keep the limit.
func TestLeasesAndDenialsSaveRoundTrips(t *testing.T) {
	s := redistest.Start(t)
	cfg := config(t, "40/365d:fixed")
	cfg.Redis = onredis.Config{URL: "redis://" + s.Addr, Fallback: fallback.Config{Timeout: patient}}
	cfg.Lease, cfg.Denials = 10, 100
	proxies := []served{serve(t, cfg)}
	assert.Equal(t, 40, spend(t, proxies, 100))
	counts := proxies[0].figures().Deciding[0].Counts
	assert.Greater(t, counts["lease"], uint64(20))
	assert.Greater(t, counts["denials"], uint64(50))
	assert.Less(t, counts["primary"], uint64(20))
}

func TestWithoutRedisOpenOrClosed(t *testing.T) {
	for onFail, want := range map[fallback.OnFail]struct {
		code   int
		source string
	}{fallback.FailOpen: {200, "open"}, fallback.FailClosed: {429, "closed"}} {
		cfg := config(t, "1/1d")
		cfg.Redis = onredis.Config{
			URL: "redis://127.0.0.1:1", // which no test's server takes, as it may a free port
			// a busy machine makes few calls in an Interval
			Fallback: fallback.Config{OnFail: onFail, MinCalls: 1}}
		log := jsonLog(&cfg.Access)
		p := serve(t, cfg)
		redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
			assert.Equal(t, want.code, status(t, "GET", p.front.URL), onFail)
			return sources([]served{p})[0] == want.source
		})
		assert.Equal(t, []string{want.source}, sources([]served{p}))
		p.inFlight.Wait()
		assert.Contains(t, log.String(), `"source":"bypass"`)
	}
}

func TestTheLocalStrategyHasItsShare(t *testing.T) {
	s, err := onredis.Open(onredis.Config{URL: "redis://127.0.0.1:1",
		Fallback: fallback.Config{Instances: 3}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer s.Close()
	tiers, err := ParseLimit("10/1s,100/10s", rule.Defaults{Strategy: rule.Fixed})
	require.NoError(t, err)
	got := share(s, tiers)
	assert.EqualValues(t, 4, got.Tiers[0].Limit, "rounded up")
	assert.EqualValues(t, 34, got.Tiers[1].Limit)
	assert.EqualValues(t, 10, tiers.Tiers[0].Limit, "the original is unchanged")
	bucket, err := ParseLimit("10/1s:token", rule.Defaults{Strategy: rule.Fixed, Burst: 7})
	require.NoError(t, err)
	assert.EqualValues(t, 3, share(s, bucket).Burst)
	assert.EqualValues(t, 10, share(s, bucket).Tiers[0].Limit, "fallback divides it")
	assert.Zero(t, s.Share(0))
	assert.Equal(t, uint64(math.MaxUint64/3), s.Share(math.MaxUint64))
}

// TestMetricsOfLimitsOfAnyName checks that the metrics distinguish limits on Redis whatever their
// names, and that a limit created again by a reload of rules replaces the old one.
func TestMetricsOfLimitsOfAnyName(t *testing.T) {
	var limits []rule.Rule
	for i, name := range []string{"a", "a (2)", "a", "caf\xe9"} {
		l, err := ParseLimit(fmt.Sprintf("%d/1d", i+1), rule.Defaults{Strategy: rule.Fixed})
		require.NoError(t, err)
		l.Name = name
		limits = append(limits, l)
	}
	s, err := onredis.Open(onredis.Config{URL: "redis://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer s.Close()
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	p := stores{limiter: limiter, redis: s}
	for range 2 {
		for _, l := range limits {
			_, err := p.strategy(l)
			require.NoError(t, err)
		}
	}
	assert.Len(t, s.Hybrids(), 4)
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "weir_fallback_callers" {
			assert.Len(t, f.Metric, 4)
			return
		}
	}
	assert.Fail(t, "no such metric")
}

func TestALeakyBucketIsLocal(t *testing.T) {
	cfg := config(t, "1/1d:leaky")
	cfg.Redis.URL = "redis://127.0.0.1:1"
	_, err := New(cfg)
	assert.ErrorContains(t, err, "--redis")
}

// TestReadingsOfAPathShareTheCountsOnRedis has two proxies: a path that is read in two ways counts
// under the names that each reading by itself has.
func TestReadingsOfAPathShareTheCountsOnRedis(t *testing.T) {
	s := redistest.Start(t)
	proxies := make([]served, 2)
	for i := range proxies {
		cfg := by(t, config(t, "2/1d"), "path")
		cfg.Redis = shared(s, 2)
		proxies[i] = serve(t, cfg)
	}
	for i, row := range []struct {
		target string
		want   int
	}{
		{"/a;%2F..%2Fb", 200}, {"/a", 200}, {"/A/", 429}, {"/a;%2F..%2Fb", 429}, {"/b", 200}, {"//b", 429},
		{"/c", 200},
	} {
		resp, body := sendRaw(t, proxies[i%2], row.target)
		assert.Equal(t, row.want, resp.StatusCode, row.target)
		assert.NotContains(t, fmt.Sprint(resp.Header, body), "(2)", row.target)
	}
}

// TestTheLogNamesWhoDecided checks that a line of the access log names the algorithm of a limit and
// the part that decided, also of tiers.
func TestTheLogNamesWhoDecided(t *testing.T) {
	s := redistest.Start(t)
	for limit, strategy := range map[string]string{"5/1d": "sliding window", "5/1d,9/2d": "tiers"} {
		for url, source := range map[string]string{
			"": "local", "redis://" + s.Addr: "primary", "redis://127.0.0.1:1": "local",
		} {
			cfg := config(t, limit)
			log := textLog(&cfg.Access)
			if url != "" {
				cfg.Redis = onredis.Config{URL: url, Fallback: fallback.Config{Timeout: patient, MinCalls: 1}}
			}
			p := serve(t, cfg)
			assert.Equal(t, 200, status(t, "GET", p.front.URL))
			assert.Contains(t, log.String(), "source="+source+" policy=")
			assert.Contains(t, strings.ReplaceAll(log.String(), `"`, ""), "strategy="+strategy+" ")
		}
	}
}
