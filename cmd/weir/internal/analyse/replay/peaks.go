package replay

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// meter computes the peaks of callers from their requests in order of time.
type meter interface{ see(h hit) }

// stateMeter computes peaks for fixed windows, the most requests of a caller in one window, and for
// sliding windows, the highest estimate for a caller. At its limit nothing is denied, so the
// estimate covers all requests.
type stateMeter struct {
	*stateDecider
	peaks []Peak
}

func (m *stateMeter) see(h hit) {
	m.peaks[h.caller] = max(m.peaks[h.caller], Peak(m.verdict(h).Total))
}

// rollingMeter computes peaks for sliding logs: the most requests of a caller in any span of the
// length. It reads the log a second time, delayed by the length, to see which requests no longer
// count, so its memory grows with callers, not with requests.
type rollingMeter struct {
	length int64
	counts []Peak // indexed by caller
	peaks  []Peak
	late   *stream
	next   hit // of late
	more   bool
}

func (m *rollingMeter) see(h hit) {
	for m.more && m.next.ns <= h.ns-m.length {
		if m.next.marks.counted() {
			m.counts[m.next.caller]--
		}
		m.next, m.more = m.late.next()
	}
	n := &m.counts[h.caller]
	m.peaks[h.caller] = max(m.peaks[h.caller], *n+1)
	if h.marks.counted() {
		*n++
	}
}

// bucketSearch finds callers' peaks for token and leaky buckets by bisection, since a bucket with a
// higher limit admits more. Each step is one pass over the log, for all callers at once.
type bucketSearch struct {
	length int64
	burst  Peak // 0 means the limit
	extra  Peak // 1 for a leaky bucket, as in bucketSize
	tries  []bucketTry
	peaks  []Peak // of sliding logs, then those found
}

// bucketTry is the search for one caller: low < peak <= high.
type bucketTry struct {
	low, high Peak // high is 0 while unknown
	limit     Peak // tried in this pass
	bucket    algorithm.State
	denied    bool
}

// newBucketSearch starts from the peaks of a sliding log, which are close to a bucket's: in any
// span of its duration, a bucket whose size is the limit admits less than twice the limit, plus
// extra.
func newBucketSearch(length int64, burst, extra Peak, peaks []Peak) *bucketSearch {
	b := &bucketSearch{length, burst, extra, make([]bucketTry, len(peaks)), peaks}
	for i, peak := range peaks {
		t := &b.tries[i]
		t.limit, t.bucket = max(peak, 1), algorithm.None
		if burst == 0 {
			t.low = (peak - extra) / 2
		}
	}
	return b
}

func (t *bucketTry) found() bool { return t.high != 0 && t.high == t.low+1 || t.high == NoLimit }

func (b *bucketSearch) see(h hit) {
	t := &b.tries[h.caller]
	if t.denied || t.found() {
		return
	}
	size := cmp.Or(b.burst, t.limit) + b.extra
	v, next := decideFuncs[rule.Token](t.bucket, bucketParams(uint64(t.limit), uint64(size), b.length),
		h.ns)
	t.denied = !v.Allowed
	if h.marks.counted() {
		t.bucket = next
	}
}

// narrow ends a pass, and reports whether another is needed.
func (b *bucketSearch) narrow() (again bool) {
	most := Peak(b.length) // a token arrives every nanosecond
	for i := range b.tries {
		t := &b.tries[i]
		switch {
		case t.found():
			continue
		case !t.denied:
			t.high = t.limit
		case t.limit >= most:
			t.high = NoLimit
		default:
			t.low = t.limit
		}
		if t.high == 0 {
			t.limit = min(2*t.limit, most)
		} else {
			t.limit = t.low + (t.high-t.low)/2
		}
		t.bucket, t.denied = algorithm.None, false
		b.peaks[i], again = t.high, again || !t.found()
	}
	return again
}

// searchPeaks computes the peaks for buckets. peaks holds those of sliding logs in their place,
// where the search starts.
func searchPeaks(s *Suggest, open func() *stream, peaks [][]Peak) {
	var searches []*bucketSearch
	for i := range peaks {
		strategy, d := s.row(i)
		if extra, isBucket := map[string]Peak{rule.Token: 0, rule.Leaky: 1}[strategy]; isBucket {
			searches = append(searches, newBucketSearch(int64(d), Peak(s.Burst), extra, peaks[i]))
		}
	}
	for len(searches) > 0 {
		in := open()
		for h, ok := in.next(); ok; h, ok = in.next() {
			for _, b := range searches {
				b.see(h)
			}
		}
		searches = slices.DeleteFunc(searches, func(b *bucketSearch) bool { return !b.narrow() })
	}
}
