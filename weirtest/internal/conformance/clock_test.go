package conformance

import (
	"sync"
	"time"
)

// testClock is a virtual clock or, in a synctest bubble, the bubble's.
type testClock struct {
	bubble bool   // read-only, as onRead
	onRead func() // without the bubble

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func newTestClock(start time.Time, bubble bool, onRead func()) Clock {
	return &testClock{bubble: bubble, onRead: onRead, now: start}
}

func (c *testClock) Now() time.Time {
	if c.bubble {
		return time.Now()
	}
	c.onRead()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

func (c *testClock) Set(t time.Time) {
	if c.bubble {
		time.Sleep(time.Until(t)) // in a bubble
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}
