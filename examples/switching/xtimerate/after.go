package xtimerate

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

func After(limiter *weir.Limiter) (allow func(caller string) bool) {
	buckets := limiter.TokenBucket(10)
	return func(caller string) bool {
		res, err := buckets.Run(context.Background(),
			&weir.Request{Key: caller, Limit: 5, Duration: time.Second})
		return err == nil && res.Allowed()
	}
}
