package algorithm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInFlight(t *testing.T) {
	const second = 1000 * msec
	var g Log
	g.Add(1*second, 2, "")
	g.Add(4*second, 3, "")
	p := func(limit, cost int64) Params { return Params{Scale: 10_000, Limit: limit, Cost: cost} }
	const now = 6 * second
	for name, c := range map[string]struct {
		held int64
		p    Params
		want Verdict
	}{
		"it just fits beside leases and places": {4, p(10, 1),
			Verdict{Allowed: true, Total: 10, At: 16 * second}},
		"the first lease makes room": {4, p(10, 2), Verdict{Total: 9, At: 11 * second}},
		"both leases make room":      {4, p(10, 6), Verdict{Total: 9, At: 14 * second}},
		"leases alone make no room":  {4, p(10, 7), Verdict{Total: 9, At: Never}},
		"a limit that was lowered below what is held": {40, p(10, 1),
			Verdict{Total: 45, At: Never}},
		"a cost over the limit": {4, p(10, 11), Verdict{Total: 9, At: Never}},
		"a limit of 0":          {4, p(0, 1), Verdict{Total: 9, At: Never}},
		"the largest numbers": {math.MaxInt64, p(math.MaxInt64, math.MaxInt64),
			Verdict{Total: math.MaxInt64, At: Never}},
	} {
		assert.Equal(t, c.want, InFlight{}.Decide(&g, c.held, c.p, now), name)
	}
	empty := InFlight{}.Decide(new(Log), 10, p(10, 1), now)
	assert.Equal(t, Verdict{Total: 10, At: Never}, empty, "nobody knows when places are released")
}
