package arith

import (
	"context"
	"sync/atomic"
)

// Parts returns a function that calls give for parts of amount, in all no more than that: for n, or
// what is left if that is less, and how much was given before. It does nothing when nothing is
// left. It is safe for concurrent use if give is.
func Parts(
	amount uint64, give func(ctx context.Context, n, before uint64) error,
) func(ctx context.Context, n uint64) error {
	var given atomic.Uint64
	return func(ctx context.Context, n uint64) error {
		for {
			before := given.Load()
			switch part := min(n, amount-before); {
			case part == 0:
				return nil
			case given.CompareAndSwap(before, before+part):
				return give(ctx, part, before)
			}
		}
	}
}
