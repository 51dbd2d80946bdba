// Package near puts strategies in front of a remote one, so that most decisions cost no round trip.
//
//   - [NewLeases] takes budget from the remote strategy in blocks and admits from them.
//   - [Denials] repeats a denial until the instant it states.
//
// Each wraps any weir.Strategy and is a weir.Counter; an op that the wrapped strategy cannot do
// fails with errors.ErrUnsupported. They compose, with each other and with package fallback:
//
//	denials := near.NewDenials(store.FixedWindow(), near.DenialsConfig{})
//	primary := near.NewLeases(denials, near.LeaseConfig{Block: 50})
//	f, err := fallback.New(primary, limiter.FixedWindow(), fallback.Config{Instances: 3})
//
// The lease has its number of instances from the fallback.
//
// # Where to put them
//
// Inside of a fallback, as above, leases and denials are of the primary alone. They are used up or
// repeated during an outage too, before local decides, and they are no evidence of the primary's
// health: the breaker judges only calls that take round trips, up to five where callers wait for
// one block. What is left of a lease is admitted beside local's share, so an outage over-admits up
// to a Block more for each instance than fallback.New says. This is the recommended order.
//
// Around a fallback, Leases take blocks from whichever strategy decides. Each is counted as a
// whole, so during an outage local admits a block at once and charges it as a whole. Denials around
// a fallback repeats local's denials for up to a Duration after the primary is back, although there
// may be room again: more is denied than need be.
//
// Leases belong outside of Denials: then a denial of a block is cached for that block's cost only,
// and a smaller request still reaches the wrapped strategy.
package near
