package weir

import "time"

// AllOf is All of strategies, which get the numbers of requests.
func AllOf(strategies ...Strategy) Strategy { return &all{strategies: strategies} }

// Keyed is a strategy of another package that counts for a Limit.
func Keyed(label string, s Strategy, n uint64, d time.Duration) Strategy {
	return keyed{JoinKey(label), s, n, d}
}
