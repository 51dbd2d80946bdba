// Command two holds each caller against two limits at once.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	perHour := limiter.SlidingWindow().Limit(4, time.Hour)
	perDay := limiter.SlidingWindow().Limit(5, 24*time.Hour).Named("daily")
	both := limits.All(perHour, perDay)
	for range 5 {
		out, err := both.Take(context.Background(), "ann", 1)
		fmt.Println(out.Allowed(), out.Left, out.By, err)
	}
}
