package caddylimit

import "time"

// SetNow replaces the clock of handlers provisioned from now on, and returns a function that
// restores it.
func SetNow(clock func() time.Time) (undo func()) {
	now = clock
	return func() { now = time.Now }
}
