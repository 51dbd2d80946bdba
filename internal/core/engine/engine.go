// Package engine decides on the buckets of callers. It speaks keys, params, verdicts and instants,
// and knows no request, result, limit or limiter. The verbs are the methods of a [Store]. There are
// two stores: [Slots], for states of a fixed size, and [States], for the others. A strategy is a
// store with an algorithm, and the keys of its buckets.
package engine

import (
	"context"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

type (
	// Params are the numbers of a request.
	Params = algorithm.Params

	// Verdict is a decision.
	Verdict = algorithm.Verdict
)

// Present is the instant as of which a decision is made at its reading of the clock.
const Present = algorithm.End

// Store decides on the callers of one strategy. Its errors are room.ErrFull.
type Store interface {
	// Count returns the verdict on a call, and the instant that it is of, and counts the cost if that
	// is admitted. meta is kept by logs.
	Count(id, meta string, c *Call) (v Verdict, now int64, err error)

	// Look returns the verdict and the instant of a Count, and counts nothing.
	Look(id string, c *Call) (v Verdict, now int64, err error)

	// Forecast returns the earliest instant at which more is available than after a verdict with this
	// total and end, or the end if that is not known.
	Forecast(id string, p Params, total, expires int64) int64

	// Refund gives p.Cost of an admission back.
	Refund(id, meta string, p Params, t Taken) error

	// Admit counts p.Cost whether it fits or not.
	Admit(id, meta string, p Params) error

	// Raise raises the count to total, the count of another store, which expires at the instant given.
	// It never lowers it, and does nothing once that has expired.
	Raise(id, meta string, p Params, expires, total int64) error

	// Reset sets the count to zero.
	Reset(id string, p Params) error

	// ResetPrefix sets the counts of all IDs with a prefix to zero.
	ResetPrefix(p *Prefix)
}

// Keys are the parts of a strategy's keys besides the ID of the caller.
type Keys struct {
	Series int64  // the number of the counts; 0: the strategy counts for itself
	Scale  int64  // in place of the scale of a call; 0: there is none
	Plan   string // of states
}

// Stores are all stores of a limiter.
type Stores struct {
	Clock   *clock.Clock
	Windows *windows.Windows

	Slots  [Kinds]Slots // a token bucket has another algorithm
	Places Places
	Logs   States[*algorithm.Log]
	Lists  States[*algorithm.Listed]
	Tiers  States[*algorithm.Slices] // each Tiers has an algorithm and keys of its own
	Queues States[*Queue]            // with a line of length 0
}

// listPlan tells a list from a log, in keys and in records.
const listPlan = "list"

// OpenStates makes the stores of states, and the places, which are kept in a table.
func (s *Stores) OpenStates(shared *states.Limits, places *slots.Table) {
	s.Logs = newStates(shared, algorithm.SlidingLog{}, empty[algorithm.Log])
	s.Lists = newStates(shared, algorithm.List{}, empty[algorithm.Listed])
	s.Lists.Plan = listPlan
	s.Tiers = newStates(shared, nil, empty[algorithm.Slices])
	s.Queues = newStates(shared, nil, newQueue)
	s.Queues.Forget = leaveNow
	s.Queues = WithLine(s.Queues, 0)
	s.Places = Places{Table: places, Clock: s.Clock}
	s.Places.Flights = newStates(shared, Leases{}, s.Places.newFlight)
	s.Places.Flights.Forget = dropLeases
}

// Call is a call of Count or Look.
type Call struct {
	Params
	AsOf int64 // the instant as of which it is decided, or Present

	WantMark bool // Mark is wanted, of a Count
	WantRest bool // Rest is wanted
	Deciding bool // a Look is part of a decision: it leaves a Sight to the Count that follows at once

	Sight
	Mark Mark
	Rest Rest
}

// Sight is where a look has seen that a bucket admits a call: a count that follows at once goes on
// from there.
type Sight struct {
	Slot   *slots.Slot // nil: the look has seen no such bucket
	State  slots.Word
	Now    int64
	Window *windows.Window // of a fixed window
}

// Rest completes a verdict.
type Rest struct {
	Full   int64 // when all is left again; algorithm.Never: not known
	Left   int64 // how much cost is left, if it is Unsaid by the verdict
	Unsaid bool
	Tier   int // of tiers: the one that binds
}

// Mark names the bucket of an admission.
type Mark struct {
	Of any      // nil: it is not named
	N  [2]int64 // further numbers of the store
}

// Taken is an admission of which something is given back.
type Taken struct {
	Mark
	Expires int64 // the instant at which it was to expire
	Before  int64 // cost that was given back before
}

// Prefix is a reset of the IDs that begin with a prefix, which ends with Ctx.
type Prefix struct {
	Ctx      context.Context
	Prefix   string
	Progress func(seen, reset int) // nil, or called now and then
	Reset    int                   // how many counts were reset
	seen     int
}

// progressEvery is how many states are looked at between two calls of progress.
const progressEvery = 1 << 11

// next reports whether to go on.
func (p *Prefix) next() bool {
	if p.Progress != nil {
		p.Progress(p.seen, p.Reset)
	}
	return p.Ctx.Err() == nil
}
