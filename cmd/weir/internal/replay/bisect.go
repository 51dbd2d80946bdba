package replay

import (
	"cmp"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// bucketSearch finds callers' peaks for token and leaky buckets by bisection, since a bucket with a
// higher limit admits more. Each step is one pass over the log, for all callers at once.
type bucketSearch struct {
	length int64
	burst  Peak // 0 means the limit
	extra  Peak // 1 for a leaky bucket, as in bucketSize
	state  []bucketTry
}

// bucketTry is the search for one caller: low < peak <= high.
type bucketTry struct {
	low, high Peak // high is 0 while unknown
	limit     Peak // tried in this pass
	bucket    bucket
	denied    bool
}

// newBucketSearch starts from the peaks of a sliding log, which are close to a bucket's: in any
// span of its duration, a bucket whose size is the limit admits less than twice the limit, plus
// extra.
func newBucketSearch(length int64, burst, extra Peak, rolling []Peak) *bucketSearch {
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

// most returns the highest limit to try, at which a token arrives every nanosecond.
func (b *bucketSearch) most() Peak { return Peak(b.length) }

func (t *bucketTry) found() bool { return t.high != 0 && t.high == t.low+1 || t.high == NoLimit }

// begin prepares a pass and reports whether another is needed.
func (b *bucketSearch) begin() bool {
	needed := false
	for i := range b.state {
		t := &b.state[i]
		t.bucket, t.denied = noBucket, false
		needed = needed || !t.found()
	}
	return needed
}

func (b *bucketSearch) see(q question) {
	t := &b.state[q.caller]
	if t.denied || t.found() {
		return
	}
	size := cmp.Or(b.burst, t.limit) + b.extra
	t.denied = !t.bucket.decide(bucketParams(uint64(t.limit), uint64(size), b.length), q.ns, q.counted).Allowed
}

// end narrows the search by the results of a pass.
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

func (b *bucketSearch) peaks() []Peak {
	out := make([]Peak, len(b.state))
	for i, t := range b.state {
		out[i] = t.high
	}
	return out
}

// searchPeaks computes the peaks for buckets. peaks holds those of sliding logs in their place,
// where the search starts.
func searchPeaks(s *Suggest, open func() *stream, peaks [][]Peak) {
	searches := map[int]*bucketSearch{} // keyed by index in peaks
	for i, strategy := range s.Strategies {
		extra, isBucket := map[string]Peak{rule.Token: 0, rule.Leaky: 1}[strategy]
		for k, d := range s.Durations {
			if at := i*len(s.Durations) + k; isBucket {
				searches[at] = newBucketSearch(int64(d), Peak(s.Burst), extra, peaks[at])
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
		pass(open(), under)
	}
	for at, b := range searches {
		peaks[at] = b.peaks()
	}
}

// pass reads the log once for the given searches.
func pass(in *stream, under []*bucketSearch) {
	for {
		q, ok := in.next()
		if !ok {
			break
		}
		for _, b := range under {
			b.see(q)
		}
	}
	for _, b := range under {
		b.end()
	}
}
