// Command tokens reserves the tokens of an answer, and keeps those that it took.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	ctx := context.Background()
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	tokens := limiter.SlidingLog().Limit(1000, time.Hour).Named("tokens")
	for range 3 {
		res, err := tokens.Reserve(ctx, "ann", 600) // at most
		if err != nil || !res.Allowed() {
			fmt.Println("not now:", res.Left, "left", err)
			continue
		}
		took := uint64(250)
		fmt.Println("took", took, res.Commit(ctx, took))
	}
}
