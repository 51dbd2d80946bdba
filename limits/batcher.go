package limits

import (
	"context"

	"github.com/weirgo/weir"
)

// Batcher calls one method for several limits, in one round trip.
type Batcher interface {
	// Store returns a value that is equal for strategies whose calls can go together, and the
	// Strategy itself: a type that embeds it, and may have another Run, is not taken for a Batcher.
	Store() (store any, of weir.Strategy)

	// Batch calls the method of op for each of attempts, whose Strategies have this Store, and sets
	// its Result, of a decision, its Err, and its Source if that is known.
	Batch(ctx context.Context, op Op, attempts []*Attempt)
}

// Op is a method of a Strategy that a [Batcher] calls.
type Op uint8

// The methods: Run, and those of [weir.Peeker], [weir.Refunder] and [weir.Charger].
const (
	OpRun Op = iota
	OpPeek
	OpRefund
	OpCharge
)
