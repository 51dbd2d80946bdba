package xtimerate

import (
	"time"

	"github.com/weirgo/weir"
)

func After(limiter *weir.Limiter) (allow func(caller string) bool) {
	return limiter.TokenBucket(10).Limit(5, time.Second).Allow
}
