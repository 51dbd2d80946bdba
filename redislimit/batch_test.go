package redislimit_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// batching is the hook of a client that sends concurrent commands in one pipeline, since most of
// the cost of a command is its round trip.
type batching struct {
	client *redis.Client // sends the batches
	queue  chan pending
}

type pending struct {
	cmd  redis.Cmder
	done chan struct{}
}

// newBatching returns a client for the server of c. It closes when ctx is done.
func newBatching(ctx context.Context, c *redis.Client) *redis.Client {
	o := *c.Options()
	o.MaxRetries = -1 // Options shows -1 as 0
	batched := redis.NewClient(&o)
	b := &batching{client: c, queue: make(chan pending, 100)}
	batched.AddHook(b)
	go func() {
		defer batched.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-b.queue:
				b.send(ctx, q)
			}
		}
	}()
	return batched
}

// send sends q and all queued commands.
func (b *batching) send(ctx context.Context, q pending) {
	all, pipe := []pending{q}, b.client.Pipeline()
	for range len(b.queue) {
		all = append(all, <-b.queue)
	}
	for _, q := range all {
		_ = pipe.Process(ctx, q.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, q := range all {
		close(q.done)
	}
}

// ProcessHook implements redis.Hook.
func (b *batching) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		q := pending{cmd, make(chan struct{})}
		b.queue <- q
		<-q.done
		return cmd.Err()
	}
}

// DialHook implements redis.Hook.
func (b *batching) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (b *batching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
