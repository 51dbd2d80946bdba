package redislimit_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// batching is the hook of a client that sends together what many ask at once: most of what a command
// costs is its way.
type batching struct {
	client *redis.Client // sends the batches
	asked  chan question
}

type question struct {
	cmd      redis.Cmder
	answered chan struct{}
}

// newBatching returns a client of the server of c that ends with ctx.
func newBatching(ctx context.Context, c *redis.Client) *redis.Client {
	o := *c.Options()
	o.MaxRetries = -1 // which its options show as 0
	together := redis.NewClient(&o)
	b := &batching{client: c, asked: make(chan question, 100)}
	together.AddHook(b)
	go func() {
		defer together.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-b.asked:
				b.answer(ctx, q)
			}
		}
	}()
	return together
}

// answer asks q and what else is there.
func (b *batching) answer(ctx context.Context, q question) {
	all, pipe := []question{q}, b.client.Pipeline()
	for range len(b.asked) {
		all = append(all, <-b.asked)
	}
	for _, q := range all {
		_ = pipe.Process(ctx, q.cmd)
	}
	_, _ = pipe.Exec(ctx) // Each command has its own error.
	for _, q := range all {
		close(q.answered)
	}
}

// ProcessHook implements redis.Hook.
func (b *batching) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		q := question{cmd, make(chan struct{})}
		b.asked <- q
		<-q.answered
		return cmd.Err()
	}
}

// DialHook implements redis.Hook.
func (b *batching) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (b *batching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
