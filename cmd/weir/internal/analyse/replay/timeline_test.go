package replay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/arith"
)

// TestTimelineCountsWhatCameInEachBin checks timelines of many spans: they have few bins, and each
// counts the requests of its time.
func TestTimelineCountsWhatCameInEachBin(t *testing.T) {
	for _, step := range []int64{1e6, 1e9, 1e10, 1e12, 1e14, 1e15} {
		rnd := rand.New(rand.NewPCG(7, uint64(step)))
		at := -rnd.Int64N(1e18)
		var all []int64
		for range 3000 {
			at += rnd.Int64N(step)
			all = append(all, at)
		}
		none := spec{rows: 1, open: func(func(uint32) string, int) (decider, error) { return nil, nil }}
		var p part
		require.NoError(t, p.prepare([]spec{none}, nil, all[0], at))
		for _, ns := range all {
			p.count(hit{ns: ns}, nil)
		}
		full := p.timeline
		for _, n := range []int{maxBins, 240, 66, 7, 2} {
			checkTimeline(t, full.Coarser(n), n, all)
		}
		checkTimeline(t, full, maxBins, all) // Coarser did not modify it
	}
}

func checkTimeline(t *testing.T, got *Timeline, atMost int, all []int64) {
	t.Helper()
	require.LessOrEqual(t, got.Bins(), atMost)
	want := make([]uint64, got.Bins())
	for _, ns := range all {
		want[time.Unix(0, ns).Sub(got.Start)/got.Width]++
	}
	require.Equal(t, want, got.Rows[0])
	require.Len(t, got.Rows[1], got.Bins(), "all rows have the same length")
	_, rest := arith.FloorDiv(got.Start.UnixNano(), int64(got.Width))
	require.Zero(t, rest, "bins are aligned")
}

func TestWidthsDivideEachOther(t *testing.T) {
	for w := widths[0]; w < 1000*24*time.Hour; w = wider(w) {
		assert.Zero(t, wider(w)%w, "%v after %v", wider(w), w)
		assert.LessOrEqual(t, wider(w)/w, time.Duration(5),
			"%v after %v: a timeline must not shrink to nothing", wider(w), w)
	}
}
