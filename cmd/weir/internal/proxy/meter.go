package proxy

import (
	"slices"
	"sync"

	"github.com/weirgo/weir/httplimit"
)

// history is the number of seconds that the page shows.
const history = 180

// second counts the decisions of one second.
type second struct{ admitted, denied, failed uint64 }

// meter derives a history per second from counters, so that decisions need not read the clock.
type meter struct {
	count func(httplimit.Outcome) uint64

	mu      sync.Mutex
	seconds []second // guarded by mu; the last history of them, oldest first
	before  second   // guarded by mu; the counts at the last tick
}

// tick ends a second.
func (m *meter) tick() {
	now := m.totals()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := second{now.admitted - m.before.admitted, now.denied - m.before.denied,
		now.failed - m.before.failed}
	m.before = now
	if len(m.seconds) == history {
		m.seconds = m.seconds[:copy(m.seconds, m.seconds[1:])]
	}
	m.seconds = append(m.seconds, last)
}

// totals sums the outcomes into the three kinds that the page shows.
func (m *meter) totals() second {
	return second{
		admitted: m.count(httplimit.Admitted) + m.count(httplimit.Bypassed) + m.count(httplimit.Exempt),
		denied:   m.count(httplimit.Denied) + m.count(httplimit.Listed),
		failed: m.count(httplimit.NoKey) + m.count(httplimit.Failed) + m.count(httplimit.Canceled) +
			m.count(httplimit.Busy),
	}
}

// past returns the completed seconds.
func (m *meter) past() []second {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seconds)
}
