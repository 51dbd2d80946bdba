package redislimit

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
)

// scanCount is how many keys one SCAN looks at.
const scanCount = 1000

// reset clears the count of r.Key in r.Duration. If there was one, it leaves two keys of 100 bytes
// each for as long as that would have lived.
func (s *Strategy) reset(ctx context.Context, r *weir.Request) error {
	key, err := s.key(r)
	if err == nil {
		_, err = s.resetKey(ctx, key)
	}
	return err
}

// resetKey clears the count at a key, and reports whether there was one.
func (s *Strategy) resetKey(ctx context.Context, key string) (bool, error) {
	v, err := s.store.eval(ctx, reset, key, at(resetArgs(), s.store.read()), resetKey, backKey)
	return v[0] == 1, err
}

// resetArgs returns the arguments of a reset, with its number.
func resetArgs() []any {
	return append(make([]any, head, head+4), "reset", 1+rand.Int64N(maxCount))
}

// resetPrefix is a reset of each key of this strategy in the database that begins with op.Key. It
// finds the keys by SCAN, on each master of a Cluster, and looks at every key of the database for
// that, 1000 in a call; progress is called after each, and told of 1000 keys more. Then it takes a
// round trip for each key that it resets. Other clients are served meanwhile. Keys that a Cluster
// moves meanwhile may be missed.
func (s *Strategy) resetPrefix(ctx context.Context, op *weir.Op) error {
	prefix, progress, done := op.Key, op.Progress, 0
	defer func() { op.Result = weir.Result{TotalRequests: uint64(done)} }()
	own, period := s.store.prefix+s.kind+":", "*"
	if d, ok := s.protocol.(*dated); ok {
		period = literal(d.name)
	}
	var mu sync.Mutex // the masters of a Cluster are scanned at the same time
	seen := 0
	scan := func(ctx context.Context, on redis.Cmdable) error {
		for cursor := uint64(0); ; {
			bounded, cancel := s.store.deadlines.Within(ctx)
			keys, next, err := on.Scan(bounded, cursor, literal(own)+period+":{"+literal(tag(prefix))+"*}",
				scanCount).Result()
			cancel()
			if err != nil {
				return explain(ctx, err)
			}
			reset := 0
			for _, key := range keys {
				_, id, _ := strings.Cut(key[len(own):], ":{") // no brace is before
				if !strings.HasPrefix(id, tag(prefix)) {
					continue
				}
				switch was, err := s.resetKey(ctx, key); {
				case err != nil:
					return err
				case was:
					reset++
				}
			}
			mu.Lock()
			seen, done = seen+scanCount, done+reset
			if progress != nil {
				progress(seen, done)
			}
			mu.Unlock()
			cursor = next
			if cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := s.store.client.(interface {
		ForEachMaster(ctx context.Context, do func(ctx context.Context, node *redis.Client) error) error
	}); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return scan(ctx, node)
		})
	}
	return scan(ctx, s.store.client)
}

// literal returns a pattern of SCAN that matches s alone.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}
