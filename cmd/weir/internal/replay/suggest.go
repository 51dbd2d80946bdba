package replay

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Suggest asks which limits fit the log.
type Suggest struct {
	Strategies []string // of package rule, without tiers
	Burst      uint64   // of token and leaky buckets; 0: the limit
	Durations  []time.Duration
	Share      float64 // of the callers that may meet a denial, from 0 to 1
}

// Durations are those a limit is suggested for if no others are given.
var Durations = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// Suggestion is the least limit of one strategy and duration that denies nothing to all but a share
// of the callers.
//
// It is exact. A caller's peak is the least limit at which none of the caller's requests is denied,
// worked out from all of them; the suggestion is the least peak that all but Share of the callers
// do not exceed.
type Suggestion struct {
	Strategy string
	Burst    uint64 // 0: the limit, or a strategy without one
	Duration time.Duration
	Limit    uint64 // NoLimit: there is none, as a caller sends more at one instant than Burst
	Denied   int    // callers with a peak above Limit, or with NoLimit
	Peaks    Peaks
}

// NoLimit is the peak of a caller that every limit denies.
const NoLimit = math.MaxUint64

// Peaks is the distribution of the callers' peaks. A percentile is the least peak that at least so
// many percent of the callers do not exceed.
type Peaks struct {
	P50, P90, P99, P999, Max uint64
	Histogram                []PeakBin // without empty bins at the end; those of NoLimit are not in it
}

// PeakBin counts the callers with a peak in From to To. Bins are 1, 2, 3 to 4, 5 to 8 and so on;
// the one that the suggested limit is in is cut after it.
type PeakBin struct {
	From, To uint64
	Callers  int
}

// suggestion makes a Suggestion of the peaks of all callers, which it sorts.
func (s *Suggest) suggestion(strategy string, d time.Duration, peaks []uint64) Suggestion {
	slices.Sort(peaks)
	n := len(peaks)
	// callers that may be denied; shares are decimals, and floats are not
	over := min(int(s.Share*float64(n)+1e-9), n-1)
	out := Suggestion{Strategy: strategy, Duration: d, Limit: peaks[n-1-over]}
	if strategy == rule.Token || strategy == rule.Leaky {
		out.Burst = s.Burst
	}
	out.Denied = n - sort.Search(n, func(i int) bool { return peaks[i] > out.Limit || peaks[i] == NoLimit })
	at := func(permille int) uint64 { return peaks[(permille*n+999)/1000-1] }
	out.Peaks = Peaks{P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: peaks[n-1],
		Histogram: histogram(peaks, out.Limit)}
	return out
}

// histogram counts sorted peaks, with the end of a bin at limit.
func histogram(sorted []uint64, limit uint64) []PeakBin {
	var bins []PeakBin
	from, to := uint64(1), uint64(1)
	for i := 0; i < len(sorted) && sorted[i] != NoLimit; {
		bin := PeakBin{From: from, To: to}
		if from <= limit && limit < to {
			bin.To = limit
		}
		for i < len(sorted) && sorted[i] <= bin.To {
			bin.Callers++
			i++
		}
		bins = append(bins, bin)
		if from = bin.To + 1; from > to {
			to *= 2
		}
	}
	return bins
}
