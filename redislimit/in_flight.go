package redislimit

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirgo/weir"
)

// InFlight bounds the work in flight, for weir.Hold. Make one with [Store.InFlight].
type InFlight struct{ Strategy }

// InFlight bounds how much of a caller's work is in flight at one time, in all processes together:
// it can weir.OpHold. Each place is a lease of r.Duration by the server's clock, which weir.Hold
// renews until it is released, so a process that dies gives its places back one Duration after it
// last renewed them. Run takes a lease that nobody renews. It is a sorted set with a member of
// about 40 bytes for each lease. The counterpart of weir's InFlight.
//
// Reset takes all leases back, also of work that is in flight: it is counted again with its next
// renewal, if there is room.
func (s *Store) InFlight() *InFlight {
	f := &InFlight{Strategy{store: s, kind: "flight", script: inFlight, protocol: leased{}}}
	return describe(f, &f.Strategy, weir.About{InFlight: true,
		Verbs: weir.VerbsOf(weir.OpHold, weir.OpRenew, weir.OpRelease)})
}

// Limit returns the limit of n at one time, as [Strategy.Limit] does, with leases of a minute.
func (f *InFlight) Limit(n uint64) *weir.Limit { return limit(f, &f.Strategy, n, time.Minute) }

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
