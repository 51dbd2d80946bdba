package arith

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b, want int64
	}{
		{"small numbers add", 2, 3, 5},
		{"small numbers subtract", 2, -3, -1},
		{"the largest plus one stays", math.MaxInt64, 1, math.MaxInt64},
		{"one plus the largest stays", 1, math.MaxInt64, math.MaxInt64},
		{"the least minus one stays", math.MinInt64, -1, math.MinInt64},
		{"two least stay", math.MinInt64, math.MinInt64, math.MinInt64},
		{"the least and the largest meet at -1", math.MinInt64, math.MaxInt64, -1},
		{"up to the largest is exact", math.MaxInt64 - 1, 1, math.MaxInt64},
		{"down to the least is exact", math.MinInt64 + 1, -1, math.MinInt64},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, Add(c.a, c.b)) })
	}
}

func TestSub(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b, want int64
	}{
		{"small numbers subtract", 2, 3, -1},
		{"the largest less minus one stays", math.MaxInt64, -1, math.MaxInt64},
		{"zero less the least stays", 0, math.MinInt64, math.MaxInt64},
		{"the least less one stays", math.MinInt64, 1, math.MinInt64},
		{"up to the largest is exact", math.MaxInt64 - 1, -1, math.MaxInt64},
		{"down to the least is exact", math.MinInt64 + 1, 1, math.MinInt64},
		{"the least less itself is zero", math.MinInt64, math.MinInt64, 0},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, Sub(c.a, c.b)) })
	}
}

func TestMul(t *testing.T) {
	assert.EqualValues(t, 6, Mul(2, 3))
	assert.Zero(t, Mul(math.MaxUint64, 0))
	assert.EqualValues(t, int64(math.MaxInt64), Mul(math.MaxUint64, 1))
	assert.EqualValues(t, int64(math.MaxInt64), Mul(math.MaxInt64, 1), "exact")
	assert.EqualValues(t, int64(math.MaxInt64), Mul(1<<62, 2))
	assert.EqualValues(t, int64(math.MaxInt64-1), Mul(math.MaxInt64/2, 2), "exact")
}

func TestDivisionRounds(t *testing.T) {
	for _, c := range []struct{ a, b, quo, rem int64 }{
		{7, 3, 2, 1}, {6, 3, 2, 0}, {0, 3, 0, 0}, {-1, 3, -1, 2}, {-3, 3, -1, 0}, {-4, 3, -2, 2},
		{math.MinInt64, 1, math.MinInt64, 0}, {math.MinInt64, 1000, math.MinInt64/1000 - 1, 192},
	} {
		quo, rem := FloorDiv(c.a, c.b)
		assert.Equal(t, c.quo, quo, "%d/%d", c.a, c.b)
		assert.Equal(t, c.rem, rem, "%d/%d", c.a, c.b)
	}
}

func TestGCD(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{
		{0, 7, 7}, {7, 0, 7}, {12, 18, 6}, {18, 12, 6}, {7, 15, 1}, {1000, 60_000, 1000},
	} {
		assert.Equal(t, c.want, GCD(c.a, c.b), "of %d and %d", c.a, c.b)
	}
}
