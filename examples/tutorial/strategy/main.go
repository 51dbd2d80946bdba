package main

import (
	"context"
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
	strategies := []weir.Strategy{limiter.FixedWindow(), limiter.SlidingWindow()}
	for _, later := range []time.Duration{0, 2 * time.Second, 18 * time.Second} {
		now = now.Add(later)
		for _, s := range strategies {
			admitted := 0
			for range 10 {
				res, err := s.Run(context.Background(),
					&weir.Request{Key: "10.0.0.7", Limit: 3, Duration: 30 * time.Second})
				if err != nil {
					log.Fatal(err)
				}
				if res.Allowed() {
					admitted++
				}
			}
			fmt.Printf("%s, %s: %d of 10\n", now.Format(time.TimeOnly), weir.NameOf(s), admitted)
		}
	}
}
