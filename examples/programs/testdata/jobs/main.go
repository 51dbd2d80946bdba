// Command jobs runs at most two jobs of a tenant at a time.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
)

func main() {
	ctx := context.Background()
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	jobs := limiter.InFlight().Limit(2)
	for range 3 {
		held, err := jobs.Hold(ctx, "acme")
		if denied := new(weir.DeniedError); errors.As(err, &denied) {
			fmt.Println("busy:", denied.Result.TotalRequests, "at work")
			continue
		}
		fmt.Println("working", err)
		defer func() { _ = held.Release(ctx) }()
	}
}
