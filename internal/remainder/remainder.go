// Package remainder has an amount of which parts are taken until nothing is left.
package remainder

import "sync/atomic"

// Remainder is what is left of an amount. It is safe for concurrent use.
type Remainder struct{ left atomic.Uint64 }

// Set makes n what is left.
func (r *Remainder) Set(n uint64) { r.left.Store(n) }

// Take takes n, or what is left if that is less. It returns how much that was, and what was left
// before.
func (r *Remainder) Take(n uint64) (taken, before uint64) {
	for {
		before = r.left.Load()
		if taken = min(n, before); r.left.CompareAndSwap(before, before-taken) {
			return taken, before
		}
	}
}
