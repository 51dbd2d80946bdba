package weir

import "math"

const maxInstant = math.MaxInt64

// addSat returns a+b, or the bound it passed.
func addSat(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// subSat returns a-b, or the bound it passed.
func subSat(a, b int64) int64 {
	switch {
	case b < 0 && a > math.MaxInt64+b:
		return math.MaxInt64
	case b > 0 && a < math.MinInt64+b:
		return math.MinInt64
	}
	return a - b
}

// mulSat returns n*each, or the largest int64. each is not negative.
func mulSat(n uint64, each int64) int64 {
	if each > 0 && n > uint64(math.MaxInt64/each) {
		return math.MaxInt64
	}
	return int64(n) * each
}

// clampCost returns n, or the largest int64.
func clampCost(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// floorDiv returns the quotient and remainder of a/b rounded toward negative infinity, so that 0 <=
// rem < b. b > 0. It overflows for no a.
func floorDiv(a, b int64) (quo, rem int64) {
	quo, rem = a/b, a%b
	if rem < 0 {
		quo--
		rem += b
	}
	return quo, rem
}

// ceilDiv returns a/b rounded up. a >= 0, b > 0.
func ceilDiv(a, b int64) int64 {
	if a == 0 {
		return 0
	}
	return (a-1)/b + 1
}
