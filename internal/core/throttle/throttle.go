// Package throttle bounds how often something is logged.
package throttle

import (
	"sync"
	"time"
)

// Throttle counts the records that it does not allow. The zero value is ready to use. It is safe
// for concurrent use.
type Throttle struct {
	mu      sync.Mutex
	next    time.Time // guarded by mu
	dropped uint64    // guarded by mu
}

// Allow reports whether to log at now, at most once in every, and how many records were dropped
// since the last one.
func (t *Throttle) Allow(now time.Time, every time.Duration) (dropped uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.dropped++
		return 0, false
	}
	dropped, t.dropped, t.next = t.dropped, 0, now.Add(every)
	return dropped, true
}
