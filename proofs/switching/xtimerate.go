package switching

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirgo/weir"
)

func beforeXTimeRate() (allow func(caller string) bool) {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return func(caller string) bool {
		mu.Lock()
		defer mu.Unlock()
		l := limiters[caller]
		if l == nil {
			l = rate.NewLimiter(5, 10)
			limiters[caller] = l
		}
		return l.Allow()
	}
}

func afterXTimeRate(limiter *weir.Limiter) (allow func(caller string) bool) {
	return limiter.TokenBucket(10).Limit(5, time.Second).Allow
}
