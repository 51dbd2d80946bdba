// Package redisrate limits callers to 3 requests a minute on Redis, before and after.
package redisrate

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func Before(addr string) (allow func(ctx context.Context, caller string) (bool, error)) {
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: addr}))
	return func(ctx context.Context, caller string) (bool, error) {
		res, err := limiter.Allow(ctx, caller, redis_rate.PerMinute(3))
		if err != nil {
			return false, err
		}
		return res.Allowed > 0, nil
	}
}
