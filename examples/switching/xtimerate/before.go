// Package xtimerate limits callers to 5 requests a second, with bursts of 10, before and after.
package xtimerate

import (
	"sync"

	"golang.org/x/time/rate"
)

func Before() (allow func(caller string) bool) {
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
