package algorithm

import "github.com/weirgo/weir/internal/core/arith"

// InFlight is the arithmetic of work in flight: leases, which are the hits of a log and end one
// period after they were taken, and places that are held, which end only when they are released.
type InFlight struct{ SlidingLog }

// Decide returns the verdict on p at now, beside places of the cost held. If the end of the leases
// alone makes no room, At of a denial is Never, as of a cost over the limit: nobody knows when the
// places are released.
func (InFlight) Decide(g *Log, held int64, p Params, now int64) Verdict {
	left := p
	left.Limit = max(0, p.Limit-held)
	v := SlidingLog{}.Decide(g, left, now)
	v.Total = arith.Add(v.Total, held)
	return v
}

// Full returns when nothing is in flight if nothing more is admitted, beside places of the cost
// held: Never if there are any, since nobody knows when they are released.
func (InFlight) Full(g *Log, held int64, p Params, now int64) int64 {
	if held > 0 {
		return Never
	}
	return SlidingLog{}.Full(g, p, now)
}
