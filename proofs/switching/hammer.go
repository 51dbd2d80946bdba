package switching

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

func afterHammer(limiter *weir.Limiter) map[string]*weir.Limit {
	return map[string]*weir.Limit{
		"fix_window":     limiter.FixedWindow().Limit(10, time.Second),   // hit(key, 1000, 10)
		"sliding_window": limiter.SlidingLog().Limit(10, time.Second),    // hit(key, 1000, 10)
		"leaky_bucket":   limiter.TokenBucket(20).Limit(10, time.Second), // hit(key, 10, 20, 1)
		"token_bucket":   limiter.TokenBucket(20).Limit(10, time.Second), // hit(key, 10, 20, 1)
	}
}

func hitHammer(limit *weir.Limit, key string) (string, error) {
	out, err := limit.Take(context.Background(), key, 1)
	switch {
	case err != nil:
		return "", err
	case !out.Allowed():
		return fmt.Sprintf("{:deny, %d}", out.Wait.Milliseconds()), nil
	}
	return fmt.Sprintf("{:allow, %d}", out.TotalRequests), nil
}
