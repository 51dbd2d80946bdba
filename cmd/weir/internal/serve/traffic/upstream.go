// Package traffic counts what a server serves: how its upstream does, and which callers send most.
package traffic

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Upstream counts how long the answers of an upstream take, without reading the clock. Tick is
// called each second. The zero value is ready. It is safe for concurrent use; Observe takes some 20
// ns.
type Upstream struct {
	took   [buckets]atomic.Uint64 // by bucketOf, since the start
	Failed atomic.Uint64          // since the start: answers with 5xx, and requests without an answer
	Left   atomic.Uint64          // those whose clients left before the answer

	mu      sync.Mutex
	before  [buckets]uint64 // guarded by mu, as all below; took at the last Tick
	seconds []second        // the last kept, the oldest first
}

// second is what happened in a second.
type second struct {
	took     [buckets]uint32
	n        uint32
	left     uint64
	p50, p99 time.Duration
	inFlight int64 // at its end
}

const (
	kept = 180 // seconds

	// buckets are so many that each is an eighth of its value wide, up to 71 minutes.
	buckets = 240
)

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	if us < 8 {
		return int(us)
	}
	e := bits.Len64(us) - 4
	return min(8*e+int(us>>e), buckets-1)
}

// middleOf returns the duration in the middle of a bucket.
func middleOf(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket) * time.Microsecond
	}
	e := bucket/8 - 1
	return time.Duration((2*(bucket-8*e)+1)<<e) * time.Microsecond / 2
}

// Observe counts an answer, or a request that ends without one.
func (u *Upstream) Observe(took time.Duration, failed bool) {
	u.took[bucketOf(took)].Add(1)
	if failed {
		u.Failed.Add(1)
	}
}

// Gone counts a request whose client left before the answer, which would have taken longer.
func (u *Upstream) Gone(after time.Duration) {
	u.took[bucketOf(after)].Add(1)
	u.Left.Add(1)
}

// Tick ends a second, with so many requests in flight.
func (u *Upstream) Tick(inFlight int64) {
	s := second{inFlight: inFlight, left: u.Left.Load()}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.took {
		n := u.took[i].Load()
		s.took[i] = uint32(n - u.before[i])
		s.n += s.took[i]
		u.before[i] = n
	}
	s.p50, s.p99 = quantiles(s)
	if len(u.seconds) == kept {
		u.seconds = u.seconds[:copy(u.seconds, u.seconds[1:])]
	}
	u.seconds = append(u.seconds, s)
}

// quantiles returns the median of what took in these seconds, and its 99th percentile, to a
// sixteenth; 0 without answers.
func quantiles(seconds ...second) (p50, p99 time.Duration) {
	var sum [buckets]uint64
	var all uint64
	for i := range seconds {
		for b, n := range seconds[i].took {
			sum[b] += uint64(n)
		}
		all += uint64(seconds[i].n)
	}
	var passed uint64
	for b, n := range sum {
		if passed*2 < all && (passed+n)*2 >= all {
			p50 = middleOf(b)
		}
		if passed*100 < all*99 && (passed+n)*100 >= all*99 {
			p99 = middleOf(b)
		}
		passed += n
	}
	return p50, p99
}

// Latency is how the upstream did in a minute.
type Latency struct {
	N        uint64 // answers, and requests that ended without one
	P50, P99 time.Duration
}

func latency(of []second) (l Latency) {
	l.P50, l.P99 = quantiles(of...)
	for i := range of {
		l.N += uint64(of[i].n)
	}
	return l
}

// Past is what an Upstream knows of the last seconds.
type Past struct {
	Minute, Before Latency // the last minute, and the one before it
	Now            Latency // the last ten seconds
	Left           uint64  // clients of the last ten seconds that left before the answer
	P50, P99       []time.Duration
	InFlight       []int64  // at the end of each second, the oldest first, as the two above
	Gone           []uint64 // clients that left in each second before the answer
}

// Past returns what is known of the last seconds.
func (u *Upstream) Past() Past {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.seconds)
	last := max(0, n-60)
	p := Past{Minute: latency(u.seconds[last:]), Before: latency(u.seconds[max(0, last-60):last]),
		Now: latency(u.seconds[max(0, n-10):])}
	for i := range u.seconds {
		s := &u.seconds[i]
		p.P50, p.P99 = append(p.P50, s.p50), append(p.P99, s.p99)
		p.InFlight = append(p.InFlight, s.inFlight)
		p.Gone = append(p.Gone, s.left-u.seconds[max(0, i-1)].left)
	}
	if n > 0 {
		p.Left = u.seconds[n-1].left - u.seconds[max(0, n-11)].left
	}
	return p
}
