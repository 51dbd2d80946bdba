package redislimit

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
)

// scanCount is how many keys one SCAN looks at.
const scanCount = 1000

// prefixReset is a reset of each key of a strategy in the database that begins with op.Key. It
// finds the keys by SCAN, on each master of a Cluster, and looks at every key of the database for
// that, 1000 in a call; op.Progress is called after each, and told of 1000 keys more. Then it takes
// a round trip for each key that it resets. Other clients are served meanwhile. Keys that a Cluster
// moves meanwhile may be missed.
type prefixReset struct {
	of *Strategy
	op *weir.Op

	mu         sync.Mutex // the masters of a Cluster are scanned at the same time
	seen, done int        // guarded by mu
}

// run resets the keys, and sets the Result of the op.
func (p *prefixReset) run(ctx context.Context) error {
	defer func() { p.op.Result = weir.Result{TotalRequests: uint64(p.done)} }()
	client := p.of.store.server.client
	if cluster, ok := client.(interface {
		ForEachMaster(ctx context.Context, do func(ctx context.Context, node *redis.Client) error) error
	}); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return p.scan(ctx, node)
		})
	}
	return p.scan(ctx, client)
}

// scan resets the keys of one server.
func (p *prefixReset) scan(ctx context.Context, on redis.Cmdable) error {
	s, period := p.of, "*"
	if d, ok := s.protocol.(*dated); ok {
		period = literal(d.name)
	}
	own, prefix := s.store.prefix+s.kind+":", tag(p.op.Key)
	pattern := literal(own) + period + ":{" + literal(prefix) + "*}"
	for cursor := uint64(0); ; {
		bounded, cancel := s.store.server.deadlines.Within(ctx)
		keys, next, err := on.Scan(bounded, cursor, pattern, scanCount).Result()
		cancel()
		if err != nil {
			return explain(ctx, err)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool {
			_, id, _ := strings.Cut(key[len(own):], ":{") // no brace is before
			return !strings.HasPrefix(id, prefix)
		})
		err = p.reset(ctx, keys)
		if err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// reset resets the keys that one call of SCAN has found, and adds that to the progress.
func (p *prefixReset) reset(ctx context.Context, keys []string) error {
	n, store := 0, p.of.store
	for _, key := range keys {
		c := call{key: key}
		c.resets()
		c.args = at(c.args, store.read())
		store.server.do(ctx, &c)
		if c.err != nil {
			return c.err
		}
		n += int(c.reply[0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.done = p.seen+scanCount, p.done+n
	if p.op.Progress != nil {
		p.op.Progress(p.seen, p.done)
	}
	return nil
}

// literal returns a pattern of SCAN that matches s alone.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}
