package redisrate

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/redislimit"
)

func After(addr string) (allow func(ctx context.Context, caller string) (bool, error), err error) {
	store, err := redislimit.New(redis.NewClient(redislimit.Options(addr)), redislimit.Config{})
	if err != nil {
		return nil, err
	}
	buckets := store.TokenBucket(0) // the burst is the limit
	return func(ctx context.Context, caller string) (bool, error) {
		res, err := buckets.Run(ctx, &weir.Request{Key: caller, Limit: 3, Duration: time.Minute})
		if err != nil {
			return false, err
		}
		return res.Allowed(), nil
	}, nil
}
