// Command tenant runs at most two jobs of a tenant at a time, and three in a minute.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

func main() {
	ctx := context.Background()
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	tenant := limits.All(limiter.InFlight().Limit(2), limiter.SlidingLog().Limit(3, time.Minute))
	for range 5 {
		held, err := tenant.Hold(ctx, "acme")
		if err != nil {
			fmt.Println(err.Error()[:len("weir: denied by sliding log, 3 in 1m")])
			continue
		}
		fmt.Println("working")
		_ = held.Release(ctx)
	}
}
