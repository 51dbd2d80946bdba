package main

import (
	"context"
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
	perClient := limiter.SlidingWindow().Limit(3, 30*time.Second)
	for range 4 {
		out, err := perClient.Take(context.Background(), "10.0.0.7", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Allowed(), out.Left, out.Wait)
	}
	fmt.Println(perClient.Allow("10.0.0.8"))
}
