package redislimit

import (
	"context"
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

	own    string // before the period in each key of the strategy
	period string // a pattern

	mu         sync.Mutex // the masters of a Cluster are scanned at the same time
	seen, done int        // guarded by mu
}

func newPrefixReset(s *Strategy, op *weir.Op) *prefixReset {
	p := &prefixReset{of: s, op: op, own: s.store.prefix + s.kind + ":", period: "*"}
	if d, ok := s.protocol.(*dated); ok {
		p.period = literal(d.name)
	}
	return p
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
	pattern := literal(p.own) + p.period + ":{" + literal(tag(p.op.Key)) + "*}"
	for cursor := uint64(0); ; {
		bounded, cancel := p.of.store.server.deadlines.Within(ctx)
		keys, next, err := on.Scan(bounded, cursor, pattern, scanCount).Result()
		cancel()
		if err != nil {
			return explain(ctx, err)
		}
		reset, err := p.reset(ctx, keys)
		if err != nil {
			return err
		}
		p.report(reset)
		cursor = next
		if cursor == 0 {
			return nil
		}
	}
}

// reset resets the keys that begin with the prefix, and returns how many had a count.
func (p *prefixReset) reset(ctx context.Context, keys []string) (n int, err error) {
	for _, key := range keys {
		_, id, _ := strings.Cut(key[len(p.own):], ":{") // no brace is before
		if !strings.HasPrefix(id, tag(p.op.Key)) {
			continue
		}
		c := call{key: key}
		c.resets()
		c.args = at(c.args, p.of.store.read())
		p.of.store.server.do(ctx, &c)
		if c.err != nil {
			return n, c.err
		}
		n += int(c.reply[0])
	}
	return n, nil
}

// report adds one call of SCAN to the progress.
func (p *prefixReset) report(reset int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.done = p.seen+scanCount, p.done+reset
	if p.op.Progress != nil {
		p.op.Progress(p.seen, p.done)
	}
}

// literal returns a pattern of SCAN that matches s alone.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}
