package proxy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit/redistest"
)

// fleetAt starts n proxies on the Redis of a URL.
func fleetAt(t *testing.T, cfg Config, url string, n int) []served {
	t.Helper()
	proxies := make([]served, n)
	for i := range proxies {
		cfg.Redis = shared(&redistest.Server{}, n)
		cfg.Redis.URL = url
		proxies[i] = serve(t, cfg)
	}
	return proxies
}

// onRedis reports whether all proxies decide by Redis.
func onRedis(proxies []served) bool {
	return !slices.ContainsFunc(sources(proxies), func(s string) bool { return s != "redis" })
}

// TestTheLimitIsHeldThroughAFailover kills the master of a Sentinel: the proxies keep to the limit
// without it, and find the new one, which they charge with what they admitted meanwhile.
func TestTheLimitIsHeldThroughAFailover(t *testing.T) {
	slow.Test(t)
	sentinel := redistest.StartSentinel(t)
	// No other Sentinel answers.
	url := "redis+sentinel://127.0.0.1:1," + sentinel.Addr + "/" + redistest.MasterName + "/2"
	proxies := fleetAt(t, config(t, "20/365d:fixed"), url, 2)
	require.Equal(t, 8, spend(t, proxies, 4))
	require.True(t, onRedis(proxies))
	redistest.Eventually(t, 10*time.Second, "replication", func() bool {
		return sentinel.Master.Info("master_repl_offset") == sentinel.Replica.Info("slave_repl_offset")
	})

	sentinel.Master.Kill()
	// 12 are left: 6 for each proxy.
	require.Equal(t, 6, spend(t, proxies[:1], 15))
	require.Equal(t, 6, spend(t, proxies[1:], 15))
	late := 0
	took := redistest.Eventually(t, 20*time.Second, "the proxies find the new master", func() bool {
		late += spend(t, proxies, 1)
		return sentinel.Replica.Info("role") == "master" && onRedis(proxies)
	})
	t.Logf("on the new master after %v", took)
	late += spend(t, proxies, 1)
	assert.LessOrEqual(t, late, 10, "what one proxy admits before the other one has charged its part")
	assert.Zero(t, spend(t, proxies, 5))
	keys, _ := sentinel.Replica.Client().Do(t.Context(), "info", "keyspace").Text()
	assert.Contains(t, keys, "db2:", "the counts are in the database of the URL")
}

// TestOnlyTheCallersOfADeadNodeAreDecidedLocally kills a node of a Cluster: its callers' limits are
// held by each proxy's share, those of all others by the Cluster.
func TestOnlyTheCallersOfADeadNodeAreDecidedLocally(t *testing.T) {
	slow.Test(t)
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no",
		"--appendonly", "yes", "--appendfsync", "always")
	url := "redis+cluster://" + strings.Join(cluster.Addrs(), ",")
	proxies := fleetAt(t, by(t, config(t, "10/365d:fixed"), "path"), url, 2)
	const callers = 30
	admitted := make([]int, callers)
	ask := func() {
		for c := range callers {
			for _, p := range proxies {
				switch code := status(t, "GET", fmt.Sprint(p.front.URL, "/", c)); code {
				case 200:
					admitted[c]++
				case 429:
				default:
					t.Errorf("status %d", code)
				}
			}
		}
	}
	total := func() (sum int) {
		for _, n := range admitted {
			sum += n
		}
		return sum
	}
	for range 4 {
		ask()
	}
	require.Equal(t, 8*callers, total())
	require.True(t, onRedis(proxies))
	// The keys of callers: a node that was slow has those of probes, too, for some seconds.
	var all []any
	ofCaller := regexp.MustCompile(`:/\d+}$`)
	held := func(s *redistest.Server) (n int) {
		keys, _ := s.Do("keys", "*").([]any)
		all = append(all, keys...)
		for _, key := range keys {
			if ofCaller.MatchString(key.(string)) {
				n++
			}
		}
		return n
	}
	dead := held(cluster.Nodes[1])
	require.Equal(t, callers, held(cluster.Nodes[0])+dead+held(cluster.Nodes[2]), all)
	require.NotZero(t, dead)
	require.Less(t, dead, callers)

	cluster.Nodes[1].Kill()
	ask() // opens the breakers of its part
	stats := func() (primary uint64) {
		for _, p := range proxies {
			s := p.redis.Hybrids()[0].Stats()
			assert.Equal(t, 1, s.OpenPartitions)
			primary += s.Primary
		}
		return primary
	}
	before := stats()
	for range 4 {
		ask()
	}
	assert.EqualValues(t, 4*2*(callers-dead), stats()-before, "decided by the Cluster")
	for c, n := range admitted {
		assert.Equal(t, 10, n, "caller %d", c)
	}

	cluster.Nodes[1].Restart()
	redistest.Eventually(t, 30*time.Second, "all parts are back", func() bool {
		ask()
		return onRedis(proxies)
	})
	ask()
	full := total()
	for range 3 {
		ask()
	}
	assert.Equal(t, full, total(), "all limits are used up, also on the Cluster")
}

// A name that no Sentinel has is no reason to deny: the proxy decides alone, and says so at its
// start.
func TestASentinelWithoutTheMaster(t *testing.T) {
	slow.Test(t)
	sentinel := redistest.StartSentinel(t)
	cfg := config(t, "3/1d")
	log := textLog(&cfg.Log)
	proxies := fleetAt(t, cfg, "redis+sentinel://"+sentinel.Addr+"/another", 1)
	assert.Equal(t, 3, spend(t, proxies, 5))
	assert.Equal(t, []string{"local"}, sources(proxies))
	proxies[0].redis.Ping(t.Context(), "local")
	assert.Contains(t, log.String(), `no Sentinel has a master named \"another\"`)
}
