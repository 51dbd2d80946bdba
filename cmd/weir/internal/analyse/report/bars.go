package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// bars is what a chart shows of each bin of a timeline: two values, the second on top of the first.
type bars struct {
	*replay.Timeline
	what      string                         // is counted
	low, high string                         // what the values are
	color     string                         // of the second on a terminal
	at        [2][]uint64                    // the first, and both together, by bin
	row       func(i int) (low, high string) // for a table
	empty     string                         // what is left out of the table
}

// denials are the requests that rule number i admits and denies.
func denials(t *replay.Timeline, i int) bars {
	all, denied := t.Rows[0], t.Rows[1+i]
	admitted := make([]uint64, len(all))
	for i := range all {
		admitted[i] = all[i] - denied[i]
	}
	return bars{t, "requests", "admitted", "denied", screen.Red, [2][]uint64{admitted, all},
		func(i int) (string, string) { return count(admitted[i]), count(denied[i]) }, "requests"}
}

// flights are the requests in flight, on average and at most.
func flights(c *replay.Curve) bars {
	average := make([]uint64, c.Bins())
	for i := range average {
		average[i] = uint64(c.Average(i) + .5)
	}
	return bars{c.Timeline, "requests in flight", "on average", "at most", screen.Yellow,
		[2][]uint64{average, c.Peaks},
		func(i int) (string, string) { return some(c.Average(i)), count(c.Peaks[i]) }, "any"}
}

// refusals are the requests that a guard admits and refuses.
func refusals(c *replay.Curve) bars {
	b := denials(c.Timeline, replay.CurveRefused-1)
	b.high = "refused"
	return b
}

// tallest returns the height of the highest bar.
func (b *bars) tallest() uint64 { return slices.Max(b.at[1]) }

// some formats a number that need not be whole.
func some(n float64) string {
	if n >= 100 || n == 0 {
		return count(uint64(n + .5))
	}
	return fmt.Sprint(roundTo(n, 3))
}

// roundTo rounds to so many digits.
func roundTo(n float64, digits int) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(n, 'g', digits, 64), 64)
	return rounded
}
