package live

import (
	"context"
	"slices"
	"sync"
	"time"
)

// History is the number of seconds that the page shows.
const History = 180

// Sums counts the decisions of a period.
type Sums struct {
	Admitted uint64 `json:"admitted"`
	Denied   uint64 `json:"denied"`
	Failed   uint64 `json:"failed"` // those that were neither
	Errors   uint64 `json:"errors"` // those of Admitted that the upstream failed
}

func (s Sums) minus(o Sums) Sums {
	return Sums{s.Admitted - o.Admitted, s.Denied - o.Denied, s.Failed - o.Failed, s.Errors - o.Errors}
}

// Meter derives a history from counters, so that decisions need not read the clock. Totals must be
// set; it is safe for concurrent use.
type Meter struct {
	Totals func() Sums // since the start
	Second func()      // called when a second ends; nil: nothing else is counted

	mu      sync.Mutex
	seconds []Sums // guarded by mu; the last History of them, oldest first
	before  Sums   // guarded by mu; the counts at the last tick
	ticks   int    // guarded by mu
	hour    []Sums // guarded by mu; the counts at the ends of the last 60 minutes, oldest first
}

// Run ends a second every second, until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.Tick()
		case <-ctx.Done():
			return
		}
	}
}

// Tick ends a second.
func (m *Meter) Tick() {
	now := m.Totals()
	if m.Second != nil {
		m.Second()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seconds = push(m.seconds, now.minus(m.before), History)
	m.before = now
	m.ticks++
	if m.ticks%60 == 0 {
		m.hour = push(m.hour, now, 60)
	}
}

// push appends s, and drops the first one of more than most.
func push(list []Sums, s Sums, most int) []Sums {
	if len(list) == most {
		list = list[:copy(list, list[1:])]
	}
	return append(list, s)
}

// Past returns the completed seconds, the oldest first.
func (m *Meter) Past() []Sums {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seconds)
}

// Sums returns the counts of the last 60 seconds, of the last hour, which may be up to a minute
// short, and of all time.
func (m *Meter) Sums() (minute, hour, total Sums) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seconds[max(0, len(m.seconds)-60):] {
		minute = Sums{minute.Admitted + s.Admitted, minute.Denied + s.Denied, minute.Failed + s.Failed,
			minute.Errors + s.Errors}
	}
	hour, total = m.before, m.before
	if len(m.hour) == 60 {
		hour = hour.minus(m.hour[0])
	}
	return minute, hour, total
}
