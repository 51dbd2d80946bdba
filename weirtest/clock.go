package weirtest

import (
	"sync"
	"time"
)

// bubbleStart is where the clock of a testing/synctest bubble starts; the zero Clock starts there
// too.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Clock is virtual time: it stands still until it is moved. Pass its Now as weir.Config.Now, or to
// anything else that takes a func() time.Time. The zero value is ready to use and reads midnight
// UTC 2000-01-01, as the clock of a testing/synctest bubble does at its start. A Clock is safe for
// concurrent use and must not be copied after first use.
//
// A Clock fires no timers. Code that waits belongs in a testing/synctest bubble, where the real
// clock is virtual.
type Clock struct {
	mu      sync.Mutex
	now     time.Time // guarded by mu
	started bool      // guarded by mu; if false, now is to be set to bubbleStart

	live   bool   // set by bubbleClock, then read-only: the clock of the bubble around it
	onRead func() // set by TestStrategy, then read-only: called before each Now; may be nil
}

// NewClock returns a Clock that reads t, without its monotonic reading.
func NewClock(t time.Time) *Clock {
	return &Clock{now: t.Round(0), started: true}
}

// bubbleClock returns the clock of the synctest bubble around it. Advance and Set sleep.
func bubbleClock() *Clock { return &Clock{live: true} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	if c.live {
		return time.Now()
	}
	if c.onRead != nil {
		c.onRead()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
	return c.now
}

// Advance moves the clock by d; a negative d steps it back.
func (c *Clock) Advance(d time.Duration) {
	if c.live {
		time.Sleep(d) // in a bubble
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
	c.now = c.now.Add(d)
}

// Set moves the clock to t, which may be earlier than the time it reads.
func (c *Clock) Set(t time.Time) {
	if c.live {
		time.Sleep(time.Until(t)) // in a bubble
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.started = t.Round(0), true
}

func (c *Clock) start() {
	if !c.started {
		c.now, c.started = bubbleStart, true
	}
}
