package weir

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/arith"
)

// capacity is the cap: how many buckets all tables of a limiter may hold together, and how many
// bytes beside them.
type capacity struct {
	max      int64 // buckets
	maxBytes int64
	taken    atomic.Int64 // usedBits of buckets in use, and above them how often one was taken
	bytes    atomic.Int64
	janitor  *janitor
}

// usedBits hold more than any memory does.
const (
	usedBits = 40
	usedMask = 1<<usedBits - 1
)

// bytesPerBucket is what logs, tiers and queues may hold, on average, for each of MaxBuckets.
const (
	bytesPerBucket = 256
	freeBytes      = 1 << 20
)

func newCapacity(buckets int64, j *janitor) capacity {
	bytes := arith.Add(freeBytes, arith.Mul(uint64(buckets), bytesPerBucket))
	return capacity{max: buckets, maxBytes: bytes, janitor: j}
}

// tryTake reserves room for one bucket, so that there are never more than max.
func (c *capacity) tryTake() bool {
	for {
		taken := c.taken.Load()
		if taken&usedMask >= c.max {
			return false
		}
		if c.taken.CompareAndSwap(taken, taken+1<<usedBits+1) {
			c.janitor.start()
			return true
		}
	}
}

func (c *capacity) give() { c.taken.Add(-1) }

// used returns how many buckets are in use.
func (c *capacity) used() int64 { return c.taken.Load() & usedMask }

// tryGrow reserves n bytes.
func (c *capacity) tryGrow(n int64) bool {
	for {
		bytes := c.bytes.Load()
		if bytes+n > c.maxBytes {
			return false
		}
		if c.bytes.CompareAndSwap(bytes, bytes+n) {
			return true
		}
	}
}
