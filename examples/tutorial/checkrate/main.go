package main

import (
	"fmt"
	"log"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	now := time.Date(2026, 11, 20, 12, 0, 10, 0, time.UTC)
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		res, err := limiter.CheckRate("10.0.0.7", 30_000, 3)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed(), res.TotalRequests, res.RetryAfter(now))
	}
}
