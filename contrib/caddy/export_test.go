package caddylimit

import "time"

// SetNow replaces the clock of handlers that are provisioned from now on, and returns what undoes
// that.
func SetNow(clock func() time.Time) (undo func()) {
	now = clock
	return func() { now = time.Now }
}
