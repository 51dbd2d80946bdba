package switching

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redislimit"
)

func beforeRedisRate(addr string) (allow func(ctx context.Context, caller string) (bool, error)) {
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: addr}))
	return func(ctx context.Context, caller string) (bool, error) {
		res, err := limiter.Allow(ctx, caller, redis_rate.PerMinute(3))
		if err != nil {
			return false, err
		}
		return res.Allowed > 0, nil
	}
}

func afterRedisRate(
	addr string,
) (allow func(ctx context.Context, caller string) (bool, error), err error) {
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
