// Package algorithm has the arithmetic of the rate limiting algorithms, each once: pure functions
// from a state and an instant to a verdict and the next state. They take no lock, read no clock and
// keep no store. An instant is an int64: nanoseconds since the Unix epoch.
package algorithm

import (
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

const (
	// Never is the instant of a Verdict on a request that can never pass, and before all others.
	Never int64 = math.MinInt64

	// End is after every instant.
	End int64 = math.MaxInt64

	msec = int64(time.Millisecond)
)

// Params are the numbers of a valid request: so few that they are passed in registers.
type Params struct {
	Scale int64 // ms: the period of the limit
	Limit int64 // the most that Cost may be: the limit, or the burst of a token bucket
	Cost  int64 // at least 1
	Each  int64 // ns between two hits, where they are spaced: Spacing
}

// State is what an algorithm keeps of a caller where that has a fixed size: a number that moves
// from decision to decision, from 0 to MaxCount, and two that are still for an epoch.
type State struct{ N, Still1, Still2 int64 }

// None is the State of a caller that has none.
var None = State{Still1: Never, Still2: Never}

// MaxCount is the largest State.N: a slot has 48 bits for it, and stores it plus one. Where N is a
// count it is also the largest Limit and Cost.
const MaxCount = 1<<48 - 2

// addCount returns a+b, at most MaxCount.
func addCount(a, b int64) int64 { return min(arith.Add(a, b), MaxCount) }

// ExceedsLimit reports whether the request can never pass.
func (p Params) ExceedsLimit() bool { return p.Cost > p.Limit }

// Verdict is a decision.
type Verdict struct {
	Allowed bool
	Total   int64 // the cost counted, with that of the request if it is admitted
	At      int64 // when a denied request would pass; when what was admitted no longer counts; Never
	Tier    int   // of Tiers: the one that binds, the shortest being 0
}

// Verdict decides on p where used, at least 0, is counted; at is when a denial ends, or an
// admission expires.
func (p Params) Verdict(used, at int64) Verdict {
	if used <= p.Limit-p.Cost { // below 0 if p exceeds the limit
		return Verdict{Allowed: true, Total: used + p.Cost, At: at}
	}
	if p.ExceedsLimit() {
		at = Never
	}
	return Verdict{Total: used, At: at}
}

// Taken is an admission that is taken back.
type Taken struct {
	Expires int64 // the instant at which it was to expire
	At      int64 // the instant at which it was admitted; Never if that is not known
}
