// Command login admits five logins a minute for each address.
package main

import (
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	logins := limiter.TokenBucket(5).Limit(5, time.Minute)
	for range 6 {
		fmt.Println(logins.Allow("10.0.0.7"))
	}
}
