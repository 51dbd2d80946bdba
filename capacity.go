package weir

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/arith"
)

// capacity bounds the buckets that the tables of a limiter hold, and the bytes beside them.
type capacity struct {
	max, maxBytes int64
	taken         atomic.Int64 // usedBits of buckets in use, and above them how often one was taken
	bytes         atomic.Int64
	janitor       *janitor
}

const (
	usedBits = 40 // they count more buckets than any memory holds
	usedMask = 1<<usedBits - 1
)

// newCapacity allows the logs, tiers and queues together 1 MiB, and 256 bytes for each bucket.
func newCapacity(buckets int64, j *janitor) capacity {
	bytes := arith.Add(1<<20, arith.Mul(uint64(buckets), 256))
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
			if !c.janitor.running.Load() {
				c.janitor.start()
			}
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
