package overload_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/testkit/slow"
	guard "github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/proofs/overload"
)

// reached returns the shares of scenarios drawn at random of which a limiter reaches the bars, and
// of the goodput of the right fixed limits that it has.
func reached(t *testing.T, n uint64, limiter func() overload.Limiter) (bars, goodput float64) {
	for seed := range n {
		s := overload.Draw(seed)
		right := overload.Run(s, overload.Fixed(s.Right()), 1)
		s.SetBars(right)
		o := overload.Run(s, limiter(), 1)
		goodput += min(1, o.Good/right.Good) / float64(n)
		if wrong := broken(s, o); len(wrong) > 0 {
			t.Logf("%s: %v, right %.0f: %.3f", s.Name, wrong, s.Right(), right.Good)
			continue
		}
		bars += 1 / float64(n)
	}
	return bars, goodput
}

// TestMostDrawnScenariosReachTheirBars draws scenarios that nobody tuned to.
func TestMostDrawnScenariosReachTheirBars(t *testing.T) {
	n := uint64(slow.N(5, 8, 150))
	bars, goodput := reached(t, n, func() overload.Limiter { return overload.NewGuarded(guard.Config{}) })
	t.Log(bars, goodput)
	assert.GreaterOrEqual(t, bars, .7)
	assert.GreaterOrEqual(t, goodput, .85)
	for _, limit := range []float64{20, 64, 640} { // the control
		bars, goodput = reached(t, n, func() overload.Limiter { return overload.Fixed(limit) })
		t.Log(limit, bars, goodput)
		assert.Less(t, bars, .7)
	}
}
