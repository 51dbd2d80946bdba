package redislimit

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Shard returns a function that names the master of the Cluster that counts a key, for
// fallback.Config.Partition: with it each shard has a breaker of its own. The key is the one that a
// Strategy of this package gets, as Partition's is: under a weir.Limit it is weir.JoinKey of its
// name, or of its numbers such as "100/1m", and the request's key. The function uses the client's
// own view of the Cluster and never waits: until the client has the Cluster, which the first call
// finds out in the background, every key belongs to the shard "".
func Shard(c *redis.ClusterClient) func(key string) string {
	var known, asking atomic.Bool
	name := func(key string) (string, error) {
		master, err := c.MasterForKey(context.Background(), "{"+tag(key)+"}")
		if err != nil {
			return "", err
		}
		return master.Options().Addr, nil
	}
	return func(key string) string {
		if known.Load() {
			addr, _ := name(key) // an error: the slot has no master
			return addr
		}
		if !asking.Swap(true) {
			go func() {
				defer asking.Store(false)
				if _, err := name(key); err == nil {
					known.Store(true)
				}
			}()
		}
		return ""
	}
}
