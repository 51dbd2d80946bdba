package redislimit_test

import (
	"context"
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

const failoverLimit = 100

var daily = &weir.Request{Key: "a", Limit: failoverLimit, Duration: 24 * time.Hour}

// spend makes requests until one fails or is denied, and returns the number admitted.
func spend(s weir.Strategy) (admitted int) {
	for range 3 * failoverLimit {
		res, err := s.Run(context.Background(), daily)
		if err != nil || !res.Allowed() {
			break
		}
		admitted++
	}
	return admitted
}

// A failover loses at most the hits that were not replicated, so at most twice the limit is
// admitted.
func TestFailoverLosesOnlyUnreplicatedHits(t *testing.T) {
	slow.Test(t)
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	proxy := redistest.NewProxy(t, master.Addr)
	s := open(t, proxy.Addr, redislimit.Config{}).FixedWindow()
	for range failoverLimit / 2 {
		mustRun(t, s, daily)
	}
	redistest.Eventually(t, 5*time.Second, "replication", func() bool {
		return master.Info("master_repl_offset") == replica.Info("slave_repl_offset")
	})

	replica.Do("replicaof", "127.0.0.1", "1") // no server listens there, so replication stops
	total := failoverLimit/2 + spend(s)
	assert.Equal(t, failoverLimit, total)
	master.Kill()
	replica.Do("replicaof", "no", "one")

	after := open(t, replica.Addr, redislimit.Config{}).FixedWindow()
	total += spend(after)
	t.Logf("%d admitted of %d", total, failoverLimit)
	assert.LessOrEqual(t, total, 2*failoverLimit)
	assert.Equal(t, failoverLimit*3/2, total, "the replicated half is still counted")
	lives(t, replica)
}

// A master that is demoted without losing its connections returns errors, and decides again once it
// may write.
func TestPromotedMasterDecidesAgain(t *testing.T) {
	slow.Test(t)
	server := redistest.Start(t)
	s := open(t, server.Addr, redislimit.Config{}).SlidingWindow()
	for range 3 {
		mustRun(t, s, daily)
		server.Do("replicaof", "127.0.0.1", "1")
		for range 50 {
			_, err := s.Run(context.Background(), daily)
			require.Equal(t, redislimit.Down, redislimit.Classify(err), "%v", err)
		}
		server.Do("replicaof", "no", "one")
		took := redistest.Eventually(t, time.Second, "decides again", func() bool {
			_, err := s.Run(context.Background(), daily)
			return err == nil
		})
		t.Logf("decides again %v after its promotion", took)
	}
}

// failoverClient returns a client for the master of that name, closed with the test.
func failoverClient(t *testing.T, sentinel *redistest.Sentinel, master string) *redis.Client {
	o := redislimit.Options("")
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: master, SentinelAddrs: []string{sentinel.Addr},
		MaxRetries: o.MaxRetries, ContextTimeoutEnabled: true, Dialer: o.Dialer,
		DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout,
		DialTimeout: o.DialTimeout,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
		DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A master that the Sentinel does not have is a mistake in the settings, and no strange reply.
func TestSentinelHasNoSuchMaster(t *testing.T) {
	slow.Test(t)
	client := failoverClient(t, redistest.StartSentinel(t), "another")
	_, err := storeOn(t, client, redislimit.Config{}).FixedWindow().Run(t.Context(), daily)
	assert.ErrorContains(t, err, "no Sentinel has a master of this name")
	assert.NotErrorIs(t, err, redislimit.ErrReply)
	assert.Equal(t, redislimit.Misconfigured, redislimit.Classify(err))
	assert.Equal(t, redislimit.Misconfigured, redislimit.Classify(client.Ping(t.Context()).Err()))
}

// A Sentinel fails over, first on request, which keeps connections to the old master, and then
// because the master was killed. The same client decides again within a second of the promotion,
// and no call exceeds the timeout.
func TestSentinelFailover(t *testing.T) {
	slow.Test(t)
	sentinel := redistest.StartSentinel(t)
	s := storeOn(t, failoverClient(t, sentinel, redistest.MasterName), redislimit.Config{}).FixedWindow()
	ctx := context.Background()
	redistest.Eventually(t, 5*time.Second, "first decision", func() bool {
		_, err := s.Run(ctx, daily)
		return err == nil
	})

	// after waits for the promotion of next, and reports how long afterwards a decision succeeded.
	after := func(next *redistest.Server) {
		t.Helper()
		slowest := time.Duration(0)
		try := func() bool {
			start := time.Now()
			_, err := s.Run(ctx, daily)
			slowest = max(slowest, time.Since(start))
			return err == nil
		}
		late := redistest.Watch()
		promoted := redistest.Eventually(t, 20*time.Second, "promotion", func() bool {
			try()
			return next.Info("role") == "master"
		})
		took := redistest.Eventually(t, 10*time.Second, "decides again", try)
		allowed := late()
		t.Logf("promoted after %v, decides again %v later, slowest call %v; the machine was late by %v",
			promoted, took, slowest, allowed)
		assert.LessOrEqual(t, took, time.Second+allowed)
		assert.LessOrEqual(t, slowest, redislimit.DefaultTimeout+2*slack+allowed)
	}
	sentinel.Do("sentinel", "failover", redistest.MasterName)
	after(sentinel.Replica)
	redistest.Settled(t, sentinel.Master, "role", "slave")
	redistest.Settled(t, sentinel.Master, "master_link_status", "up")
	sentinel.AwaitReplica()
	sentinel.Replica.Kill()
	after(sentinel.Master)
}
