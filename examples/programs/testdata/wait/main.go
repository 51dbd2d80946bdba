// Command wait sends a request each 100 ms, and the first three at once.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	sends := limiter.TokenBucket(3).Limit(10, time.Second)
	start := time.Now()
	for range 5 {
		if err := sends.Wait(context.Background(), "api"); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(start).Round(100 * time.Millisecond))
}
