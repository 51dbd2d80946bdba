package budget

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
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
		spent      uint64 // then
	}{
		"to the block":                      {window, end, 3, 5, 0, 5},
		"no more than a block":              {window, end, 5, 6, 1, 3},
		"no more than was used":             {window, end, 100, 6, 4, 0},
		"of an earlier window":              {window, end.Add(-5 * time.Second), 3, 2, 3, 8},
		"the lease has ended":               {Cost{2, now, 0}, end, 3, 0, 3, 7},
		"to a bucket":                       {tokens, end, 3, 5, 0, 5},
		"to a bucket that has had it again": {tokens, now, 3, 2, 3, 8},
		"only what has not flowed in again": {Cost{2, now.Add(4 * time.Second), each}, end, 4, 4, 2, 4},
	} {
		b := Budget{left: row.left, known: Cost{10, end, row.left.Each}, expires: end}
		out := b.GiveBack(&weir.Result{State: weir.Allow, ExpiresAt: row.of}, row.n, 6, now)
		assert.Equal(t, row.out, out, name)
		assert.Equal(t, row.left2, b.Left(now), name)
		assert.Equal(t, row.spent, b.Spent(now), name)
	}
}

var start = time.Unix(1_700_000_000, 0)

// after returns the instant some seconds after start.
func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// state is what a Budget says at an instant.
type state struct{ left, spent uint64 }

func assertStates(t *testing.T, b *Budget, states map[float64]state) {
	t.Helper()
	for at, want := range states {
		now := after(at)
		assert.Equal(t, want, state{b.Left(now), b.Spent(now)}, "after %v s", at)
		assert.Equal(t, want.left+want.spent == 0, b.Ended(now), "after %v s", at)
	}
}

// In a window of 10 s of which one is the skew, a block of 10 is taken where 20 are counted.
func TestBlockOfAWindow(t *testing.T) {
	var b Budget
	assertStates(t, &b, map[float64]state{0: {}})
	block := Cost{10, after(10), 0}
	b.Learn(block, &weir.Result{State: weir.Allow, TotalRequests: 30, ExpiresAt: block.Until},
		time.Second, start)
	assertStates(t, &b, map[float64]state{0: {10, 20}, 8.999: {10, 20}, 9: {0, 30}, 9.999: {0, 30},
		10: {}})

	assert.EqualValues(t, 10, b.Left(after(9).Add(-1)))
	assert.Nil(t, b.Take(11, 100, start), "too little is left")
	assert.Nil(t, b.Take(2, 1, start), "over the limit")
	assert.Nil(t, b.Take(5, 24, start), "the limit is lower than that of the block")
	assert.Nil(t, b.Take(5, 24, time.Time{}))
	assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 25, ExpiresAt: block.Until},
		b.Take(5, 25, start))
	assertStates(t, &b, map[float64]state{0: {5, 25}})
	assert.Nil(t, b.Take(1, 100, after(9)), "it has lapsed")
	assert.EqualValues(t, 26, b.Take(1, 100, time.Time{}).TotalRequests, "nothing has, then")
	assert.EqualValues(t, 30, b.Take(4, 100, start).TotalRequests)
	assertStates(t, &b, map[float64]state{0: {0, 30}})

	b.Charge(5)
	assertStates(t, &b, map[float64]state{0: {0, 35}, 9.999: {0, 35}, 10: {}})
	b.Learn(Cost{2, block.Until, 0}, &weir.Result{TotalRequests: 40, ExpiresAt: after(12)}, 0, start)
	assertStates(t, &b, map[float64]state{0: {0, 40}, 11: {0, 40}, 12: {}})
	b.Charge(1<<64 - 1)
	assertStates(t, &b, map[float64]state{0: {0, 1<<64 - 1}})
}

// A block may be all of a limit.
func TestBlockOfTheWholeLimit(t *testing.T) {
	var b Budget
	b.Learn(Cost{10, after(10), 0}, &weir.Result{State: weir.Allow, TotalRequests: 10,
		ExpiresAt: after(10)}, 0, start)
	assert.NotNil(t, b.Take(10, 10, start))
}

// What is left of a block adds to the next of its window alone.
func TestNextBlock(t *testing.T) {
	for name, row := range map[string]struct {
		next Cost
		left uint64
	}{
		"of the window":        {Cost{4, after(10), 0}, 7},
		"of the next window":   {Cost{4, after(20), 0}, 4},
		"of a bucket":          {Cost{4, after(10), time.Second}, 4},
		"of a bucket, lapsing": {Cost{4, after(2), time.Second}, 2},
	} {
		var b Budget
		b.Learn(Cost{3, after(10), 0}, &weir.Result{State: weir.Allow, TotalRequests: 3,
			ExpiresAt: after(10)}, 0, start)
		b.Learn(row.next, &weir.Result{State: weir.Allow, TotalRequests: 7, ExpiresAt: row.next.Until},
			0, start)
		assert.Equal(t, row.left, b.Left(start), name)
	}
}

// Of a bucket that gains a token a second 4 are taken, and 6 others are missing.
func TestBlockOfABucket(t *testing.T) {
	var b Budget
	block := Cost{4, after(10), time.Second}
	b.Learn(block, &weir.Result{State: weir.Allow, TotalRequests: 10, ExpiresAt: block.Until}, 0,
		start)
	assertStates(t, &b, map[float64]state{0: {4, 6}, 0.5: {4, 6}, 1: {4, 5}, 6: {4, 0}, 7: {3, 0},
		7.5: {2, 1}, 9: {1, 0}, 9.5: {0, 1}, 10: {}})
	assert.EqualValues(t, 1, b.Spent(after(10).Add(-1)), "a part of a token")
	assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 7, ExpiresAt: after(7)},
		b.Take(1, 100, start))
	assertStates(t, &b, map[float64]state{0: {3, 7}, 7: {3, 0}, 8: {2, 0}})

	// Two more, taken by others meanwhile, do not make what is left lapse later.
	block = Cost{2, after(14), time.Second}
	b.Learn(block, &weir.Result{State: weir.Allow, TotalRequests: 14, ExpiresAt: block.Until}, 0,
		start)
	assertStates(t, &b, map[float64]state{0: {5, 9}, 7: {5, 2}, 8: {4, 2}, 11: {1, 2}, 12: {0, 2},
		14: {}})
	b.Learn(Cost{9, after(30), time.Second}, &weir.Result{TotalRequests: 12, ExpiresAt: after(1)}, 0,
		start)
	assertStates(t, &b, map[float64]state{0: {5, 7}, 11.5: {0, 1}, 12: {}})
	b.Charge(2)
	assertStates(t, &b, map[float64]state{0: {5, 9}, 12: {0, 2}, 14: {}})
	assert.EqualValues(t, 3, b.GiveBack(&weir.Result{ExpiresAt: after(14)}, 4, 6, start))
	assertStates(t, &b, map[float64]state{0: {6, 5}})
}

// A bucket may gain a token a nanosecond, and a block of it lapses so, whatever one that has lapsed
// was.
func TestBlocksOfAFastBucket(t *testing.T) {
	var b Budget
	for _, now := range []time.Time{start, after(1)} {
		b.Learn(Cost{5, now.Add(8), 1}, &weir.Result{State: weir.Allow, TotalRequests: 8,
			ExpiresAt: now.Add(8)}, 0, now)
		assert.EqualValues(t, 5, b.Left(now))
		assert.EqualValues(t, 3, b.Left(now.Add(5)))
		assert.EqualValues(t, 1, b.Spent(now.Add(2)))
		b.Learn(Cost{2, now.Add(20), 1}, &weir.Result{State: weir.Allow, TotalRequests: 20,
			ExpiresAt: now.Add(20)}, 0, now)
		assert.EqualValues(t, 6, b.Left(now.Add(4)), "no later than before")
		b.Learn(Cost{9, now.Add(30), 1}, &weir.Result{TotalRequests: 12}, 0, now)
		assert.EqualValues(t, 2, b.Spent(now.Add(4)))
	}
}

// What is left of a token bucket is paced, and so is what is counted in one.
func TestPaced(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	window, tokens := Cost{2, now.Add(time.Second), 0}, Cost{2, now.Add(time.Second), 1}
	admitted, denied := &weir.Result{State: weir.Allow}, &weir.Result{State: weir.Deny}
	for _, tt := range []struct {
		name   string
		blocks []Cost
		last   *weir.Result
		want   bool
	}{
		{"nothing", nil, nil, false},
		{"a window's", []Cost{window}, admitted, false},
		{"denied by a window", []Cost{window}, denied, false},
		{"a bucket's", []Cost{tokens}, admitted, true},
		{"denied by a bucket", []Cost{tokens}, denied, true},
		{"a bucket's, and denied by a window", []Cost{tokens, window}, denied, true},
	} {
		var b Budget
		for i, block := range tt.blocks {
			res := admitted
			if i == len(tt.blocks)-1 {
				res = tt.last
			}
			b.Learn(block, res, 0, now)
		}
		assert.Equal(t, tt.want, b.Paced(), tt.name)
	}
}

// What is left need not be taken again, but a call takes one at least.
func TestLacking(t *testing.T) {
	b := Budget{left: Cost{3, after(10), 0}}
	for n, want := range map[uint64]uint64{0: 1, 1: 1, 3: 1, 4: 1, 5: 2, 10: 7} {
		assert.Equal(t, want, b.Lacking(n, start), n)
	}
	assert.EqualValues(t, 5, b.Lacking(5, after(10)))
}
