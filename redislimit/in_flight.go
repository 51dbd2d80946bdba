package redislimit

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirgo/weir"
)

// InFlight bounds the work in flight, for weir.Hold. Make one with [Store.InFlight].
type InFlight struct{ Strategy }

// Limit returns the limit of n at one time, as [Strategy.Limit] does, with leases of a minute.
func (f *InFlight) Limit(n uint64) *weir.Limit { return f.Strategy.Limit(n, time.Minute) }

// leased is the protocol of an InFlight.
type leased struct{ anchored }

func (leased) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	args, possible, err := anchored{}.ask(args, r, n)
	return append(args, newID("r")), possible, err
}

// newID returns an ID that no other lease has. One with the prefix h is held.
func newID(prefix string) string {
	return prefix + strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}
