package budget

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
	for seed := range uint64(slow.N(200, 300, 10_000)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		now := time.Unix(1_700_000_000, 0)
		full := now // when the bucket is
		var b Budget
		var blocks []Cost
		for range 30 {
			now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			kind := seed
			if rng.IntN(8) == 0 { // a request of another limit
				kind++
			}
			c := Cost{N: 1 + rng.Uint64N(9),
				Each: []time.Duration{0, 0, time.Second, 2 * time.Second}[kind%4]}
			if c.Each > 0 {
				if full.Before(now) {
					full = now
				}
				full = full.Add(span(c.N+rng.Uint64N(4), c.Each)) // others take some, too
				c.Until = full
			} else {
				c.Until = now.Truncate(10 * time.Second).Add(10 * time.Second)
				if rng.IntN(8) == 0 { // by a clock that is ahead
					c.Until = c.Until.Add(10 * time.Second)
				}
			}
			b.Learn(c, &weir.Result{State: weir.Allow, ExpiresAt: c.Until}, 0, now)
			blocks = append(blocks, c)
			for range rng.IntN(4) { // uses some, what lapses first at first
				now = now.Add(time.Duration(rng.Int64N(int64(time.Second))))
				if b.left.at(now) == 0 {
					break
				}
				b.left.N = b.left.at(now) - 1
				for i := range blocks {
					if n := blocks[i].at(now); n > 0 {
						blocks[i].N = n - 1
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

// What is given back is left again if it is of the block's window, and still counts; the wrapped
// strategy takes the rest back.
func TestGiveBack(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end, each := now.Add(10*time.Second), time.Second
	window := Cost{2, end, 0}
	tokens := Cost{2, end, each}
	for name, row := range map[string]struct {
		left       Cost
		of         time.Time // ExpiresAt of the admission
		n          uint64
		left2, out uint64 // what is left then, and what the wrapped strategy takes back
	}{
		"to the block":                      {window, end, 3, 5, 0},
		"no more than a block":              {window, end, 5, 6, 1},
		"no more than was used":             {window, end, 100, 6, 4},
		"of an earlier window":              {window, end.Add(-5 * time.Second), 3, 2, 3},
		"the lease has ended":               {Cost{2, now, 0}, end, 3, 0, 3},
		"to a bucket":                       {tokens, end, 3, 5, 0},
		"to a bucket that has had it again": {tokens, now, 3, 2, 3},
		"only what has not flowed in again": {Cost{2, now.Add(4 * time.Second), each}, end, 4, 4, 2},
	} {
		b := Budget{left: row.left, known: Cost{10, end, row.left.Each}, expires: end}
		out := b.GiveBack(&weir.Result{State: weir.Allow, ExpiresAt: row.of}, row.n, 6, now)
		assert.Equal(t, row.out, out, name)
		assert.Equal(t, row.left2, b.left.at(now), name)
	}
}
