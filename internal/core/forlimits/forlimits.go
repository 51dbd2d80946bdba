// Package forlimits is what package weir gives to package limits, and to nobody else: the steps of
// a decision that are not among the methods of a Strategy.
package forlimits

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// Local is a strategy of package weir that decides at once.
type Local[Request, Result any] interface {
	// Run is that of the Strategy, and Look is Peek, that set res, and return how long it holds. After
	// an error res is undefined. If at is not NoSight, the look is part of a decision; if it is not
	// FinalLook either, a look that admits may set it instead of res, for a run that follows at once.
	Run(r *Request, res *Result, at *Sight) (left time.Duration, err error)
	Look(r *Request, res *Result, at *Sight) (left time.Duration, err error)
}

// Sight is where a look saw that a bucket admits a request: a run at once goes on from there, as if
// it had read all this itself.
type Sight struct {
	algorithm.Params
	Slot   *slots.Slot // nil: the look saw no such bucket
	State  slots.Word
	Now    int64
	Window *windows.Window // of a fixed window
}

// Counts identifies where a strategy counts: a request of one key counts twice in two strategies
// with equal ones. The Limit and the Duration of requests are part of that unless it is Bound.
type Counts struct {
	Of        any // a Limiter, a store, or another Strategy; nil: it cannot be compared
	Series    int64
	Scale     int64
	Bound     bool
	Algorithm string
	Plan      string // of tiers, and of calendars on a store; of a Limit there, the label of its keys
}

// NoSight stands for a run without a look, or a Peek; FinalLook for a look of a decision that no
// run follows. Nothing writes them.
var NoSight, FinalLook = new(Sight), new(Sight)

// SaysLeft is whether the Result of an admission says how much cost is left, and that of a denial.
type SaysLeft struct{ Admitted, Denied bool }

// Of reports whether that of an admission, or else of a denial, does.
func (s SaysLeft) Of(admitted bool) bool {
	if admitted {
		return s.Admitted
	}
	return s.Denied
}

// Weir is the value of Steps, with the types of package weir.
type Weir[Strategy, Request, Result, Limit, Tier, Place, Held any] struct {
	// LocalOf returns what s decides by, or nil if that is another package, or may wait.
	LocalOf func(s Strategy) Local[Request, Result]

	// Known returns where package limits keeps what it knows of the Strategy of a Limit.
	Known func(m *Limit) *atomic.Value

	// Inner returns the Strategy of another package that s counts by for a Limit, and makes r the
	// request that it gets; nil if s is none such.
	Inner func(s Strategy, r *Request) Strategy

	// CountsOf returns where s counts.
	CountsOf func(s Strategy) Counts

	// TiersOf returns the tiers of s, or of what it wraps, the shortest first, or none.
	TiersOf func(s Strategy) []Tier

	// Keep holds a place that s has admitted for r.
	Keep func(s Strategy, r *Request, p Place) *Held

	// SaysLeft returns whether a Result of s says how much cost is left; LeftOf returns it where it
	// does not, after s has decided res on r.
	SaysLeft func(s Strategy) SaysLeft
	LeftOf   func(ctx context.Context, s Strategy, r *Request, res *Result, most uint64) uint64

	// FullOf returns when nothing counts for r, after s has decided res on it, or has looked; the zero
	// time if that is not known.
	FullOf func(s Strategy, r *Request, res *Result, taken bool) time.Time

	// InFlight reports whether s bounds work in flight, and Unreleasable returns the error of a hit of
	// it that nobody could release.
	InFlight     func(s Strategy) bool
	Unreleasable func(s Strategy) error
}

// Steps is a Weir, set when package weir is initialized.
var Steps any
