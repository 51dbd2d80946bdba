// Package hammer is the program after a switch from Hammer, by algorithm.
package hammer

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

type algorithm struct {
	strategy weir.Strategy
	limit    uint64
	duration time.Duration
}

func After(limiter *weir.Limiter) map[string]algorithm {
	return map[string]algorithm{
		"fix_window":     {limiter.FixedWindow(), 10, time.Second},   // hit(key, 1000, 10)
		"sliding_window": {limiter.SlidingLog(), 10, time.Second},    // hit(key, 1000, 10)
		"leaky_bucket":   {limiter.TokenBucket(20), 10, time.Second}, // hit(key, 10, 20, 1)
		"token_bucket":   {limiter.TokenBucket(20), 10, time.Second}, // hit(key, 10, 20, 1)
	}
}

func (a algorithm) Hit(key string) (string, error) {
	res, err := a.strategy.Run(context.Background(),
		&weir.Request{Key: key, Limit: a.limit, Duration: a.duration})
	switch {
	case err != nil:
		return "", err
	case !res.Allowed():
		return fmt.Sprintf("{:deny, %d}", time.Until(res.ExpiresAt).Milliseconds()), nil
	}
	return fmt.Sprintf("{:allow, %d}", res.TotalRequests), nil
}
