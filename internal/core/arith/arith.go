// Package arith has the integer arithmetic of instants and counts: sums, differences and products
// that stop at the bounds of an int64, divisions that round as is said, and amounts that are given
// back in parts.
package arith

import (
	"math"
	"math/bits"
)

// Add returns a+b, or the bound it passed.
func Add(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Sub returns a-b, or the bound it passed.
func Sub(a, b int64) int64 {
	switch {
	case b < 0 && a > math.MaxInt64+b:
		return math.MaxInt64
	case b > 0 && a < math.MinInt64+b:
		return math.MinInt64
	}
	return a - b
}

// Mul returns n*each, or the largest int64. each is not negative.
func Mul(n uint64, each int64) int64 {
	hi, lo := bits.Mul64(n, uint64(each))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// FloorDiv returns the quotient and remainder of a/b rounded toward negative infinity, so that 0 <=
// rem < b. b > 0. It overflows for no a.
func FloorDiv(a, b int64) (quo, rem int64) {
	quo, rem = a/b, a%b
	if rem < 0 {
		quo--
		rem += b
	}
	return quo, rem
}

// GCD returns the greatest common divisor of a and b, which are not negative; that of 0 and b is b.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
