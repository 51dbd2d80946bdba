package redislimit_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// batching is a client that sends together what many ask at once: most of what a command costs is
// its way.
type batching struct {
	*redis.Client
	asked chan question
}

type question struct {
	cmd      redis.Cmder
	answered chan struct{}
}

// newBatching returns a client that ends with ctx.
func newBatching(ctx context.Context, c *redis.Client) batching {
	b := batching{c, make(chan question, 100)}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-b.asked:
				b.answer(ctx, q)
			}
		}
	}()
	return b
}

// answer asks q and what else is there.
func (b batching) answer(ctx context.Context, q question) {
	all, pipe := []question{q}, b.Pipeline()
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

// Process implements redis.UniversalClient.
func (b batching) Process(_ context.Context, cmd redis.Cmder) error {
	q := question{cmd, make(chan struct{})}
	b.asked <- q
	<-q.answered
	return cmd.Err()
}
