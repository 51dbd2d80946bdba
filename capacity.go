package weir

import "sync/atomic"

// capacity is the cap: how many buckets all tables of a limiter may hold together, and how many
// bytes beside them.
type capacity struct {
	max      int64 // buckets
	maxBytes int64
	used     atomic.Int64
	bytes    atomic.Int64
	janitor  *janitor
}

// bytesPerBucket is what logs, tiers and queues may hold, on average, for each of MaxBuckets.
const (
	bytesPerBucket = 256
	freeBytes      = 1 << 20
)

func newCapacity(buckets int64, j *janitor) capacity {
	bytes := addSat(freeBytes, mulSat(uint64(buckets), bytesPerBucket))
	return capacity{max: buckets, maxBytes: bytes, janitor: j}
}

// tryTake reserves room for one bucket, so that there are never more than max.
func (c *capacity) tryTake() bool {
	for {
		n := c.used.Load()
		if n >= c.max {
			return false
		}
		if c.used.CompareAndSwap(n, n+1) {
			c.janitor.start()
			return true
		}
	}
}

func (c *capacity) give() { c.used.Add(-1) }

// tryGrow reserves n bytes.
func (c *capacity) tryGrow(n int64) bool {
	if c.bytes.Add(n) <= c.maxBytes {
		return true
	}
	c.bytes.Add(-n)
	return false
}

// reclaim makes room for a bucket. It reports false if nothing that it looked at is over, and there
// is none.
func (c *capacity) reclaim(now int64) bool {
	return c.janitor.reclaim(now) > 0 || c.used.Load() < c.max
}
