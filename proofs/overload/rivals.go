package overload

import (
	"math"
	"testing"
	"testing/synctest"

	"github.com/weirgo/weir/overload"
)

// Rival is a way to limit what is in flight.
type Rival struct {
	Name   string
	New    func() Limiter
	Bubble bool // its clock is that of a synctest bubble
}

// Run simulates s with r.
func (r Rival) Run(t *testing.T, s Scenario, seed uint64) (o Outcome) {
	if !r.Bubble {
		return Run(s, r.New(), seed)
	}
	synctest.Test(t, func(*testing.T) { o = Run(s, r.New(), seed) })
	return o
}

// Rivals are those of the table. Those of Netflix's concurrency-limits are written after its
// documentation, with its defaults: Vegas learns of each request, Gradient2 of windows of a second.
func Rivals() []Rival {
	return []Rival{
		{Name: "nothing", New: func() Limiter { return &adaptive{limit: math.Inf(1)} }},
		{Name: "fixed 64", New: func() Limiter { return &adaptive{limit: 64} }},
		{Name: "fixed 640", New: func() Limiter { return &adaptive{limit: 640} }},
		{Name: "Vegas", New: func() Limiter { return &adaptive{limit: 20, next: new(vegas).next} }},
		{Name: "Gradient2", New: func() Limiter {
			return &adaptive{limit: 20, window: 1, next: new(gradient2).next}
		}},
		{Name: "Envoy", New: newEnvoy},
		{Name: "failsafe-go 0.9.8", New: newFailsafe, Bubble: true},
		{Name: "weir", New: func() Limiter { return NewGuarded(overload.Config{}) }},
		{Name: "weir, no parts or shares", New: func() Limiter {
			return NewGuarded(overload.Config{Parts: [3]float64{1, 1, 1}, Share: 1})
		}},
	}
}

// adaptive has one limit for all.
type adaptive struct {
	limit, inFlight float64
	// nil: the limit is fixed
	next   func(limit, inFlight, took float64) float64
	window float64 // seconds of which next gets means; 0: none

	begin, n, sum, peak float64 // of the window
}

// Enter implements Limiter.
func (a *adaptive) Enter(float64, *Request) bool {
	if a.inFlight+1 > math.Floor(a.limit) {
		return false
	}
	a.inFlight++
	return true
}

// Leave implements Limiter.
func (a *adaptive) Leave(now float64, _ *Request, took float64) {
	a.n, a.sum, a.peak = a.n+1, a.sum+took, max(a.peak, a.inFlight)
	if a.next != nil && (a.window == 0 || now >= a.begin+a.window && a.n >= 10) {
		a.limit = a.next(a.limit, a.peak, a.sum/a.n)
		a.begin, a.n, a.sum, a.peak = now, 0, 0, 0
	}
	a.inFlight--
}

// vegas compares each request with the quickest.
type vegas struct{ quickest float64 }

func (v *vegas) next(limit, inFlight, took float64) float64 {
	if v.quickest == 0 || took < v.quickest {
		v.quickest = took
		return limit
	}
	if inFlight*2 < limit {
		return limit
	}
	log := math.Max(1, math.Floor(math.Log10(limit)))
	switch queue := math.Ceil(limit * (1 - v.quickest/took)); {
	case queue <= log:
		limit += 6 * log
	case queue < 3*log:
		limit += log
	case queue > 6*log:
		limit -= log
	}
	return min(max(1, limit), 1000)
}

// gradient2 compares each window with the mean of the last 600.
type gradient2 struct{ mean, n float64 }

func (g *gradient2) next(limit, inFlight, took float64) float64 {
	if g.n < 10 {
		g.n++
		g.mean += (took - g.mean) / g.n
	} else {
		g.mean += (took - g.mean) * 2 / 601
	}
	if g.mean/took > 2 {
		g.mean *= .95
	}
	if inFlight < limit/2 {
		return limit
	}
	gradient := min(max(.5, 1.5*g.mean/took), 1)
	return min(max(20, .8*limit+.2*(limit*gradient+4)), 200)
}

// Fixed returns one.
func Fixed(limit float64) Limiter { return &adaptive{limit: limit} }
