package near

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/slow"
)

// What is left of several blocks is never more than if each were held by itself, whatever their
// windows and limits.
func TestRestsOfBlocksLapseInTime(t *testing.T) {
	left := uint64(0)
	for seed := range uint64(slow.N(200, 1000, 10_000)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		now := time.Unix(1_700_000_000, 0)
		full := now // when the bucket is
		var b budget
		var blocks []cost
		for range 30 {
			now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			kind := seed
			if rng.IntN(8) == 0 { // a request of another limit
				kind++
			}
			c := &call{each: []time.Duration{0, 0, time.Second, 2 * time.Second}[kind%4],
				request: weir.Request{Cost: 1 + rng.Uint64N(9)}}
			if c.each > 0 {
				if full.Before(now) {
					full = now
				}
				full = full.Add(span(c.request.Cost+rng.Uint64N(4), c.each)) // others take some, too
				c.until = full
			} else {
				c.until = now.Truncate(10 * time.Second).Add(10 * time.Second)
				if rng.IntN(8) == 0 { // by a clock that is ahead
					c.until = c.until.Add(10 * time.Second)
				}
			}
			b.lease(c, c.until, 0, now)
			blocks = append(blocks, cost{c.request.Cost, c.until, c.each})
			for range rng.IntN(4) { // uses some, what lapses first at first
				now = now.Add(time.Duration(rng.Int64N(int64(time.Second))))
				if b.left.at(now) == 0 {
					break
				}
				b.left.n = b.left.at(now) - 1
				for i := range blocks {
					if n := blocks[i].at(now); n > 0 {
						blocks[i].n = n - 1
						break
					}
				}
			}
			for at := now; at.Before(now.Add(30 * time.Second)); at = at.Add(700 * time.Millisecond) {
				apart := uint64(0)
				for i := range blocks {
					apart += blocks[i].at(at)
				}
				if !assert.LessOrEqual(t, b.left.at(at), apart, "seed %d, %v later", seed, at.Sub(now)) {
					return
				}
				left += b.left.at(at)
			}
		}
	}
	assert.Positive(t, left)
}
