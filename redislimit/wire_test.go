package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// everyStrategy returns all strategies of a Store by name. Tiers have the limit and duration of the
// given request and a tier of twice the duration.
func everyStrategy(t testing.TB, s *redislimit.Store, like *weir.Request) map[string]weir.Counter {
	t.Helper()
	tiers := s.Tiers(weir.Tier{Limit: like.Limit, Duration: like.Duration},
		weir.Tier{Limit: 2 * like.Limit, Duration: 2 * like.Duration})
	return map[string]weir.Counter{
		"FixedWindow": s.FixedWindow(), "SlidingWindow": s.SlidingWindow(), "SlidingLog": s.SlidingLog(),
		"SortedSet": redislimit.SortedSet(s), "TokenBucket": s.TokenBucket(0), "Tiers": tiers,
		"Counter": s.Counter(), "List": s.List(), "InFlight": s.InFlight(),
		// One for each Duration, which it ignores.
		"Calendar": s.Calendar(weir.Hour, time.FixedZone("{"+like.Duration.String()+"}:{", 0)),
	}
}

var fivePerMinute = &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}

// dial returns a client, closed with the test.
func dial(t testing.TB, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialCluster returns a client of a Cluster, closed with the test.
func dialCluster(t testing.TB, cluster *redistest.Cluster) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), Dialer: redislimit.Options("").Dialer, MaxRetries: -1,
		ContextTimeoutEnabled: true, DialerRetries: 1, DialTimeout: time.Second, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// generous is a Timeout for tests that do not measure time: the machine may be busy.
const generous = 5 * time.Second

// generousOptions are the package's settings, with such timeouts.
func generousOptions(addr string) *redis.Options {
	o := redislimit.Options(addr)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Second, generous, generous,
		generous
	return o
}

// storeOn returns a Store on a client.
func storeOn(
	t testing.TB, c redis.UniversalClient, cfg redislimit.Config,
) *redislimit.Store {
	t.Helper()
	s, err := redislimit.New(c, cfg)
	require.NoError(t, err)
	return s
}

// open returns a Store on a client with the package's settings. Its Timeout is generous by default.
func open(t testing.TB, addr string, cfg redislimit.Config) *redislimit.Store {
	t.Helper()
	o := redislimit.Options(addr)
	if cfg.Timeout == 0 {
		cfg.Timeout, o = generous, generousOptions(addr)
	}
	return storeOn(t, dial(t, o), cfg)
}

// mustRun returns the Result of a Run that must not fail.
func mustRun(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := s.Run(context.Background(), r)
	require.NoError(t, err)
	return res
}

// pttl returns how long a key still lives.
func pttl(t testing.TB, c *redis.Client, key string) time.Duration {
	t.Helper()
	left, err := c.PTTL(context.Background(), key).Result()
	require.NoError(t, err)
	return left
}

// mustPeek returns the Result of a Peek that must not fail.
func mustPeek(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := ops.Peek(context.Background(), s, r)
	require.NoError(t, err)
	return res
}

func TestOneRoundTripForEachCall(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	ctx := context.Background()
	for name, s := range everyStrategy(t, open(t, proxy.Addr, redislimit.Config{}), fivePerMinute) {
		t.Run(name, func(t *testing.T) {
			r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Meta: "m"}
			_, err := s.Run(ctx, r) // dials and uploads the script
			require.NoError(t, err)

			taken := &weir.Result{State: weir.Allow, TotalRequests: 3, ExpiresAt: time.Now().Add(time.Hour)}
			calls := map[string]func() error{
				"Run": func() error { _, err := s.Run(ctx, r); return err },
				"Run that can never pass": func() error {
					_, err := s.Run(ctx, &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 5001})
					return err
				},
				"Peek":   func() error { _, err := ops.Peek(ctx, s, r); return err },
				"Refund": func() error { return ops.Refund(ctx, s, r, taken) },
				"Seed":   func() error { return ops.Seed(ctx, s, r, taken) },
				"Charge": func() error { return ops.Charge(ctx, s, r) },
				"Reset":  func() error { return ops.Reset(ctx, s, r) },
				"Admit":  func() error { _, _, err := ops.Admit(ctx, s, r); return err },
			}
			require.NoError(t, ops.Reset(ctx, s, r)) // uploads its script
			require.NoError(t, ops.Refund(ctx, s, r, taken))
			require.NoError(t, ops.Seed(ctx, s, r, taken))
			_, back, err := ops.Admit(ctx, s, &weir.Request{Key: "b", Limit: 5, Duration: time.Minute, Cost: 5})
			require.NoError(t, err) // it uploads its script, too
			for name, call := range calls {
				proxy.Forget()
				for range 10 {
					require.NoError(t, call(), name)
				}
				assert.Equal(t, map[string]int{"evalsha": 10}, proxy.Seen(), name)
			}
			proxy.Forget()
			for range 10 {
				require.NoError(t, back(ctx, 1))
			}
			assert.Equal(t, map[string]int{"evalsha": 5}, proxy.Seen(),
				"Return: there is nothing left after the fifth")
		})
	}
}

func TestForgottenScriptsAreSentAgainOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	for name, s := range everyStrategy(t, open(t, proxy.Addr, redislimit.Config{}), fivePerMinute) {
		t.Run(name, func(t *testing.T) {
			r := fivePerMinute
			for want := range uint64(4) {
				server.Do("script", "flush")
				proxy.Forget()
				res := mustRun(t, s, r)
				assert.Equal(t, want+1, res.TotalRequests, "counted once")
				seen := proxy.Seen()
				delete(seen, "hello") // the first call dials
				assert.Equal(t, map[string]int{"evalsha": 1, "eval": 1}, seen)
			}
		})
	}
}
