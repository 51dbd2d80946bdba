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

// Suggestion is the least limit of one strategy and duration that denies nothing to all but a share of the callers.
//
// It is exact. A caller's peak is the least limit at which none of the caller's requests is denied, worked out from all
// of them; the suggestion is the least peak that all but Share of the callers do not exceed.
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

// Peaks is the distribution of the callers' peaks. A percentile is the least peak that at least so many percent of the
// callers do not exceed.
type Peaks struct {
	P50, P90, P99, P999, Max uint64
	Histogram                []PeakBin // without empty bins at the end; those of NoLimit are not in it
}

// PeakBin counts the callers with a peak in From to To. Bins are 1, 2, 3 to 4, 5 to 8 and so on; the one that the
// suggested limit is in is cut after it.
type PeakBin struct {
	From, To uint64
	Callers  int
}

// meter works out the peaks of callers from their requests, in the order of time.
type meter interface {
	see(q question) error
	peaks() []uint64 // by caller
}

// windowMeter is for a fixed window: a caller's peak is the most requests in a window.
type windowMeter struct {
	length int64
	state  []window
	peak   []uint64
}

func (m *windowMeter) see(q question) error {
	w := &m.state[q.caller]
	w.at(q.ns, m.length)
	m.peak[q.caller] = max(m.peak[q.caller], w.n+1)
	if q.counted {
		w.n++
	}
	return nil
}

func (m *windowMeter) peaks() []uint64 { return m.peak }

// slideMeter is for a sliding window: a caller's peak is the most that the estimate comes to. At that limit nothing is
// denied, so the estimate is of all requests.
type slideMeter struct {
	length int64
	state  []slide
	peak   []uint64
}

func (m *slideMeter) see(q question) error {
	s := &m.state[q.caller]
	m.peak[q.caller] = max(m.peak[q.caller], s.at(q.ns, m.length)+1)
	if q.counted {
		s.n++
	}
	return nil
}

func (m *slideMeter) peaks() []uint64 { return m.peak }

// rollingMeter is for a sliding log: a caller's peak is the most requests in any span of the length. It reads the log a
// second time, that much later, to see which requests no longer count: so its memory is by callers, not by requests.
type rollingMeter struct {
	length int64
	state  []rollingCount
	late   *stream
	ns     int64 // the next request of late
	code   uint32
	more   bool
}

type rollingCount struct{ n, peak uint64 }

func newRollingMeter(length int64, callers int, s *spool) (*rollingMeter, error) {
	late, err := s.open()
	if err != nil {
		return nil, err
	}
	m := &rollingMeter{length: length, state: make([]rollingCount, callers), late: late}
	m.ns, m.code, m.more, err = late.next()
	return m, err
}

func (m *rollingMeter) see(q question) error {
	for m.more && m.ns <= q.ns-m.length {
		if m.code&1 == 0 {
			m.state[m.code>>1].n--
		}
		var err error
		if m.ns, m.code, m.more, err = m.late.next(); err != nil {
			return err
		}
	}
	c := &m.state[q.caller]
	c.peak = max(c.peak, c.n+1)
	if q.counted {
		c.n++
	}
	return nil
}

func (m *rollingMeter) peaks() []uint64 {
	out := make([]uint64, len(m.state))
	for i, c := range m.state {
		out[i] = c.peak
	}
	return out
}

// bucketSearch is for token and leaky buckets: a caller's peak is found by bisection, since what a bucket admits grows
// with its limit. Each step is one pass over the log, for all callers at a time.
type bucketSearch struct {
	length int64
	burst  uint64 // 0: the limit
	extra  uint64 // 1 for a leaky bucket, as in bucketSize
	state  []bucketTry
}

// bucketTry is the search for one caller. The peak is above low and not above high.
type bucketTry struct {
	low, high uint64 // high 0: not known
	limit     uint64 // of this pass
	bucket    bucket
	denied    bool
}

// newBucketSearch begins with the peaks of a sliding log, to which a bucket's are close: a bucket of the limit admits in
// any span of its duration less than twice the limit, and the extra.
func newBucketSearch(length int64, burst, extra uint64, rolling []uint64) *bucketSearch {
	b := &bucketSearch{length: length, burst: burst, extra: extra, state: make([]bucketTry, len(rolling))}
	for i, peak := range rolling {
		t := &b.state[i]
		if burst == 0 {
			t.low = (peak - extra) / 2
		}
		t.limit = max(peak, 1)
	}
	return b
}

// most is the highest limit that is tried: at it a token comes every nanosecond.
func (b *bucketSearch) most() uint64 { return uint64(b.length) }

func (t *bucketTry) found() bool { return t.high != 0 && t.high == t.low+1 || t.high == NoLimit }

// begin prepares a pass and reports whether one is needed.
func (b *bucketSearch) begin() bool {
	needed := false
	for i := range b.state {
		t := &b.state[i]
		t.bucket, t.denied = bucket{noBucket}, false
		needed = needed || !t.found()
	}
	return needed
}

func (b *bucketSearch) see(q question) {
	t := &b.state[q.caller]
	if t.denied || t.found() {
		return
	}
	every, size := interval(t.limit, b.length), b.burst
	if size == 0 {
		size = t.limit
	}
	if t.denied = t.bucket.used(q.ns, every) >= size+b.extra; !t.denied && q.counted {
		t.bucket.take(q.ns, every)
	}
}

// end narrows the search by what a pass found.
func (b *bucketSearch) end() {
	for i := range b.state {
		t := &b.state[i]
		if t.found() {
			continue
		}
		switch {
		case !t.denied:
			t.high = t.limit
		case t.limit >= b.most():
			t.high = NoLimit
		default:
			t.low = t.limit
		}
		if t.high == 0 {
			t.limit = min(2*t.limit, b.most())
		} else {
			t.limit = t.low + (t.high-t.low)/2
		}
	}
}

func (b *bucketSearch) peaks() []uint64 {
	out := make([]uint64, len(b.state))
	for i, t := range b.state {
		out[i] = t.high
	}
	return out
}

// openMeters returns the meters of one part: for each strategy and duration one, in that order. Those of buckets find
// the bounds of the search.
func openMeters(s *Suggest, sp *spool, callers int) ([]meter, error) {
	var all []meter
	for _, strategy := range s.Strategies {
		for _, d := range s.Durations {
			var m meter
			var err error
			switch strategy {
			case rule.Fixed:
				m = &windowMeter{int64(d), filled(callers, window{number: noWindow}), make([]uint64, callers)}
			case rule.Sliding:
				m = &slideMeter{int64(d), filled(callers, slide{window: window{number: noWindow}}), make([]uint64, callers)}
			default:
				m, err = newRollingMeter(int64(d), callers, sp)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// searchPeaks replaces the peaks of meters of buckets, which are those of sliding logs, by the buckets' own.
func searchPeaks(s *Suggest, sp *spool, peaks [][]uint64) error {
	searches := map[int]*bucketSearch{} // by index in peaks
	for i, strategy := range s.Strategies {
		extra, isBucket := map[string]uint64{rule.Token: 0, rule.Leaky: 1}[strategy]
		for k, d := range s.Durations {
			if at := i*len(s.Durations) + k; isBucket {
				searches[at] = newBucketSearch(int64(d), s.Burst, extra, peaks[at])
			}
		}
	}
	for {
		var under []*bucketSearch
		for _, b := range searches {
			if b.begin() {
				under = append(under, b)
			}
		}
		if len(under) == 0 {
			break
		}
		if err := pass(sp, under); err != nil {
			return err
		}
	}
	for at, b := range searches {
		peaks[at] = b.peaks()
	}
	return nil
}

// pass goes over the log once for some searches.
func pass(sp *spool, under []*bucketSearch) error {
	in, err := sp.open()
	if err != nil {
		return err
	}
	for {
		ns, code, ok, err := in.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		for _, b := range under {
			b.see(question{caller: code >> 1, ns: ns, counted: code&1 == 0})
		}
	}
	for _, b := range under {
		b.end()
	}
	return nil
}

// suggestion makes a Suggestion of the peaks of all callers, which it sorts.
func (s *Suggest) suggestion(strategy string, d time.Duration, peaks []uint64) Suggestion {
	slices.Sort(peaks)
	n := len(peaks)
	over := min(int(s.Share*float64(n)+1e-9), n-1) // callers that may be denied; shares are decimals, and floats are not
	out := Suggestion{Strategy: strategy, Duration: d, Limit: peaks[n-1-over]}
	if strategy == rule.Token || strategy == rule.Leaky {
		out.Burst = s.Burst
	}
	out.Denied = n - sort.Search(n, func(i int) bool { return peaks[i] > out.Limit || peaks[i] == NoLimit })
	at := func(permille int) uint64 { return peaks[(permille*n+999)/1000-1] }
	out.Peaks = Peaks{P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: peaks[n-1], Histogram: histogram(peaks, out.Limit)}
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
