package replay

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// Suggest says which limits to suggest.
type Suggest struct {
	Strategies []string // names of package rule, except Tiers
	Burst      uint64   // of token and leaky buckets; 0 means the limit
	Durations  []time.Duration
	DenyAtMost float64 // the fraction of callers that may be denied a request, from 0 to 1
}

// Durations are the default durations of suggested limits.
var Durations = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// Suggestion is the lowest limit, for one strategy and duration, that denies a request to at most a
// fraction of the callers.
//
// It is exact. A caller's peak is the lowest limit that denies none of the caller's requests,
// computed from all of them; the suggestion is the lowest peak that at most DenyAtMost of the
// callers exceed.
type Suggestion struct {
	Strategy string        `json:"strategy"`
	Burst    uint64        `json:"burst,omitempty"` // 0 means the limit, or a strategy without a burst
	Duration time.Duration `json:"-"`
	// NoLimit if too many callers send more than Burst at one instant
	Limit  Peak  `json:"limit"`
	Denied int   `json:"callers_denied"` // callers with a peak above Limit or of NoLimit
	Peaks  Peaks `json:"peaks"`
	// Histogram has no empty bins at the end and no peaks of NoLimit.
	Histogram []PeakBin `json:"histogram"`
	Curve     []Point   `json:"-"`
}

// Point is the number of callers that a limit denies a request.
type Point struct {
	Limit  Peak
	Denied int
}

// maxCurve bounds the points of a curve, but for that of the suggested limit.
const maxCurve = 200

// Peak is the lowest limit that denies none of a caller's requests. Its JSON is null for NoLimit.
type Peak uint64

// NoLimit is the peak of a caller that is denied a request at every limit.
const NoLimit Peak = math.MaxUint64

// MarshalJSON implements json.Marshaler.
func (p Peak) MarshalJSON() ([]byte, error) {
	if p == NoLimit {
		return []byte("null"), nil
	}
	return strconv.AppendUint(nil, uint64(p), 10), nil
}

// Peaks is the distribution of the callers' peaks. A percentile is the lowest peak that at least
// that percentage of the callers do not exceed.
type Peaks struct {
	P50  Peak `json:"p50"`
	P90  Peak `json:"p90"`
	P99  Peak `json:"p99"`
	P999 Peak `json:"p99_9"`
	Max  Peak `json:"max"`
}

// PeakBin counts the callers with a peak from From to To. The bins are 1, 2, 3 to 4, 5 to 8 and so
// on; the bin that contains the suggested limit is cut after it.
type PeakBin struct {
	From    Peak `json:"from"`
	To      Peak `json:"to"`
	Callers int  `json:"callers"`
}

// suggest computes the suggestions of res from the callers' peaks.
func (r *run) suggest(res *Result) {
	s := r.cfg.Suggest
	if s == nil {
		return
	}
	if r.cfg.ByEndpoint {
		res.Endpoints = r.endpoints(s)
		return
	}
	peaks := make([][]Peak, len(s.Strategies)*len(s.Durations))
	for i := range peaks {
		for _, p := range r.parts {
			peaks[i] = append(peaks[i], p.peaks[i]...)
		}
	}
	res.Suggestions = s.suggestions(peaks)
}

// Endpoint is a method and a path with its ids folded, and the limits that fit its callers.
type Endpoint struct {
	Name        string       `json:"endpoint"`
	Requests    uint64       `json:"requests"`
	Callers     int          `json:"callers"`
	Suggestions []Suggestion `json:"-"` // as in Result; nil for endpoint.Apart
}

// endpoints computes suggestions from the peaks of the callers of each endpoint.
func (r *run) endpoints(s *Suggest) (all []Endpoint) {
	d, p := r.described, r.parts[0]
	peaks := make([][][]Peak, len(d.place.names)) // by endpoint, then by strategy and duration
	for i := range p.peaks {
		for pair, at := range d.pair {
			for len(peaks[at]) <= i {
				peaks[at] = append(peaks[at], nil)
			}
			peaks[at][i] = append(peaks[at][i], p.peaks[i][pair])
		}
	}
	for at, name := range d.place.names {
		one := Endpoint{Name: UTF8(name), Requests: d.place.requests[at], Callers: len(peaks[at][0])}
		if !endpoint.Apart(name) {
			one.Suggestions = s.suggestions(peaks[at])
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Denies returns how many of the callers a suggested limit may deny. DenyAtMost is a decimal
// fraction, which a float does not represent exactly.
func (s *Suggest) Denies(callers int) int { return int(s.DenyAtMost*float64(callers) + 1e-9) }

// BurstOf returns the burst of a strategy.
func (s *Suggest) BurstOf(strategy string) uint64 {
	if (rule.Rule{Strategy: strategy}).HasBurst() {
		return s.Burst
	}
	return 0
}

// row returns the strategy and the duration of a row of peaks: there is one for each strategy, then
// for each duration.
func (s *Suggest) row(i int) (strategy string, d time.Duration) {
	n := len(s.Durations)
	return s.Strategies[i/n], s.Durations[i%n]
}

// suggestions computes the suggestion of each row.
func (s *Suggest) suggestions(peaks [][]Peak) (all []Suggestion) {
	for i, row := range peaks {
		strategy, d := s.row(i)
		all = append(all, s.suggestion(strategy, d, row))
	}
	return all
}

// suggestion computes a Suggestion from the peaks of all callers. It sorts peaks.
func (s *Suggest) suggestion(strategy string, d time.Duration, peaks []Peak) Suggestion {
	slices.Sort(peaks)
	n := len(peaks)
	over := min(s.Denies(n), n-1)
	out := Suggestion{Strategy: strategy, Burst: s.BurstOf(strategy), Duration: d,
		Limit: peaks[n-1-over]}
	out.Denied = n - sort.Search(n, func(i int) bool {
		return peaks[i] > out.Limit || peaks[i] == NoLimit
	})
	at := func(permille int) Peak { return peaks[(permille*n+999)/1000-1] }
	out.Peaks = Peaks{P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: peaks[n-1]}
	out.Histogram = histogram(peaks, out.Limit)
	out.Curve = curve(peaks, out.Limit)
	return out
}

// curve returns a Point for each of sorted peaks, at which alone the number of callers changes. Of
// many it leaves some out, but not the first, the last and the limit.
func curve(sorted []Peak, limit Peak) (points []Point) {
	n := len(sorted)
	for i := 0; i < n && sorted[i] != NoLimit; {
		at := sorted[i]
		for i < n && sorted[i] == at {
			i++
		}
		points = append(points, Point{at, n - i})
	}
	if len(points) <= maxCurve {
		return points
	}
	last, kept := len(points)-1, 0
	return slices.DeleteFunc(points, func(p Point) bool {
		i := kept
		kept++
		return i*(maxCurve-1)/last == (i-1)*(maxCurve-1)/last && i > 0 && p.Limit != limit
	})
}

// histogram counts sorted peaks. One bin ends at limit.
func histogram(sorted []Peak, limit Peak) []PeakBin {
	bins := []PeakBin{}
	from, to := Peak(1), Peak(1)
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
		from = bin.To + 1
		if from > to {
			to *= 2
		}
	}
	return bins
}
