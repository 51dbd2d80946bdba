package redisrate

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redislimit"
)

func After(addr string) (allow func(ctx context.Context, caller string) (bool, error), err error) {
	store, err := redislimit.New(redis.NewClient(redislimit.Options(addr)), redislimit.Config{})
	if err != nil {
		return nil, err
	}
	callers := store.TokenBucket(0).Limit(3, time.Minute) // the burst is the limit
	return func(ctx context.Context, caller string) (bool, error) {
		out, err := callers.Take(ctx, caller, 1)
		return out.Allowed(), err
	}, nil
}
