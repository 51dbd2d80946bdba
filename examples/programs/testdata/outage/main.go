// Command outage limits by Redis, which is down, so that this process decides by itself.
package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
)

func main() {
	limiter := must(weir.New(weir.Config{}))
	store := must(redislimit.New(redis.NewClient(redislimit.Options("127.0.0.1:1")), redislimit.Config{}))
	shared := must(fallback.New(store.SlidingWindow(), limiter.SlidingWindow(), fallback.Config{}))
	perUser := shared.Limit(2, time.Minute).Named("per user")
	fmt.Println(perUser.Allow("ann"), perUser.Allow("ann"), perUser.Allow("ann"))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
