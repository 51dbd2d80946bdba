package replay

import (
	"math"

	"github.com/weirgo/weir/internal/algorithm"
)

// The states of callers below hold what package algorithm needs of them. weir's own strategies keep
// the same in tables; here a caller's number is its index, and a decision takes a tenth of the time.
// TestJudgesSayWhatWeirSays compares each with weir's strategy.

// The algorithms. A bucket's size is the limit of its params.
var (
	fixed   algorithm.FixedWindow
	sliding algorithm.SlidingWindow
	token   algorithm.TokenBucket
)

// window is the state of a fixed window.
type window struct {
	end int64 // in nanoseconds since the Unix epoch
	n   int64
}

// decide returns the verdict on p at ns, which is not before the last. It counts the request if count
// is set.
func (w *window) decide(p algorithm.Params, ns int64, count bool) algorithm.Verdict {
	if ns >= w.end {
		*w = window{end: algorithm.WindowEnd(p.Scale, ns)}
	}
	v, next := fixed.Decide(algorithm.State{N: w.n}, p, ns)
	if count {
		w.n = next.N
	}
	return v
}

// slide is the state of a sliding window.
type slide algorithm.State

// decide is as that of window.
func (s *slide) decide(p algorithm.Params, ns int64, count bool) algorithm.Verdict {
	v, next := sliding.Decide(algorithm.State(*s), p, ns)
	if count {
		*s = slide(next)
	}
	return v
}

// bucket is the state of a token bucket or a leaky bucket: the instant when it is full or, for a leaky
// bucket, empty again.
type bucket int64

// decide is as that of window.
func (b *bucket) decide(p algorithm.Params, ns int64, count bool) algorithm.Verdict {
	v, next := token.Decide(algorithm.State{Still1: int64(*b)}, p, ns)
	if count {
		*b = bucket(token.Expires(next, p.Scale))
	}
	return v
}

// The states of callers without requests.
var noWindow, noSlide, noBucket = window{end: algorithm.Never}, slide(algorithm.None), bucket(algorithm.Never)

// windowParams returns the numbers of a request in windows of a length in nanoseconds.
func windowParams(limit uint64, length int64) algorithm.Params {
	return algorithm.Params{Scale: length / 1e6, Limit: int64(min(limit, math.MaxInt64)), Cost: 1}
}

// bucketParams returns the numbers of a request of a token bucket of size tokens, of which limit
// flow in within length. A bucket that takes longer to fill than an int64 of nanoseconds counts is
// never empty, since the log is shorter.
func bucketParams(limit, size uint64, length int64) algorithm.Params {
	p := windowParams(limit, length)
	p.Each = algorithm.Spacing(p.Scale, p.Limit)
	p.Limit = int64(min(size, uint64(math.MaxInt64/p.Each)))
	return p
}
