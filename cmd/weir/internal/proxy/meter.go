package proxy

import (
	"slices"
	"sync"

	"github.com/weirgo/weir/httplimit"
)

// history is the number of seconds that the page shows.
const history = 180

// second counts the decisions of one second, or of another period.
type second struct {
	Admitted uint64 `json:"admitted"`
	Denied   uint64 `json:"denied"`
	Failed   uint64 `json:"failed"`
}

// meter derives a history per second from counters, so that decisions need not read the clock.
type meter struct {
	count func(httplimit.Outcome) uint64

	mu      sync.Mutex
	seconds []second // guarded by mu; the last history of them, oldest first
	before  second   // guarded by mu; the counts at the last tick
	ticks   int      // guarded by mu
	hour    []second // guarded by mu; the counts at the ends of the last 60 minutes, oldest first
}

// tick ends a second.
func (m *meter) tick() {
	now := m.totals()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := second{now.Admitted - m.before.Admitted, now.Denied - m.before.Denied,
		now.Failed - m.before.Failed}
	m.before = now
	if len(m.seconds) == history {
		m.seconds = m.seconds[:copy(m.seconds, m.seconds[1:])]
	}
	m.seconds = append(m.seconds, last)
	if m.ticks++; m.ticks%60 == 0 {
		if len(m.hour) == 60 {
			m.hour = m.hour[:copy(m.hour, m.hour[1:])]
		}
		m.hour = append(m.hour, now)
	}
}

// sums returns the counts of the last 60 seconds, of the last hour, which may be up to a minute
// short, and of all time.
func (m *meter) sums() (minute, hour, total second) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seconds[max(0, len(m.seconds)-60):] {
		minute.Admitted += s.Admitted
		minute.Denied += s.Denied
		minute.Failed += s.Failed
	}
	hour, total = m.before, m.before
	if len(m.hour) == 60 {
		hour.Admitted -= m.hour[0].Admitted
		hour.Denied -= m.hour[0].Denied
		hour.Failed -= m.hour[0].Failed
	}
	return minute, hour, total
}

// totals sums the outcomes into the three kinds that the page shows.
func (m *meter) totals() second {
	return second{
		Admitted: m.count(httplimit.Admitted) + m.count(httplimit.Bypassed) + m.count(httplimit.Exempt),
		Denied:   m.count(httplimit.Denied) + m.count(httplimit.Listed),
		Failed: m.count(httplimit.NoKey) + m.count(httplimit.Failed) + m.count(httplimit.Canceled) +
			m.count(httplimit.Busy),
	}
}

// past returns the completed seconds.
func (m *meter) past() []second {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seconds)
}
