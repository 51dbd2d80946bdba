package replay

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunsAreReadAsWritten reads encoded runs from memory and from a file: whole seconds in groups
// of any size, and requests with fractions of a second.
func TestRunsAreReadAsWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	for _, most := range []int{1, 3, 2*maxCodes + 1} {
		e := encoder{at: math.MinInt64}
		var want []event
		for at := stamp(-5e9); len(want) < 3*maxCodes; at += stamp(rnd.Int64N(3e9)) {
			at, n := at&^1/2e9*2e9, 1+rnd.IntN(most)
			if rnd.IntN(2) == 0 {
				at, n = at+stamp(rnd.Int64N(1e9))*2+1, 1
			}
			for range n {
				if next := (event{at, rnd.Uint32()}); e.follows(next.at, next.code) {
					e.add(next.at, next.code)
					want = append(want, next)
				}
			}
		}
		data := e.end()
		for _, run := range []sortedRun{{data: data}, {to: int64(len(data))}} {
			c, err := newCursor(run, bytes.NewReader(data))
			require.NoError(t, err)
			var got []event
			for more := true; more; more, err = c.next() {
				if c.left == 0 {
					got = append(got, event{c.at, c.code})
				}
				for c.left > 0 {
					codes, err := c.codes(nil, 1000)
					require.NoError(t, err)
					for _, code := range codes {
						got = append(got, event{c.at, code})
					}
				}
			}
			require.NoError(t, err)
			require.Equal(t, want, got, "groups of up to %d", most)
		}
		_, err := newCursor(sortedRun{data: data[:3]}, nil)
		require.ErrorIs(t, err, errRun)
	}
}
