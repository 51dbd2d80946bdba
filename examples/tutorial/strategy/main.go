package main

import (
	"fmt"
	"log"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	now := time.Date(2026, 11, 20, 12, 0, 29, 0, time.UTC) // a second before the next window
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	sliding := limiter.SlidingWindow().Limit(3, 30*time.Second)
	for _, later := range []time.Duration{0, 2 * time.Second, 18 * time.Second} {
		now = now.Add(later)
		inFixed, inSliding := 0, 0
		for range 10 {
			if res, err := limiter.CheckRate("10.0.0.7", 30_000, 3); err == nil && res.Allowed() {
				inFixed++
			}
			if sliding.Allow("10.0.0.7") {
				inSliding++
			}
		}
		fmt.Printf("%s: fixed window %d, sliding window %d of 10\n",
			now.Format(time.TimeOnly), inFixed, inSliding)
	}
}
