package redislimit

import (
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/calendar"
)

// Calendar is a Strategy that counts in windows of the calendar. Make one with [Store.Calendar].
type Calendar struct{ Strategy }

// Limit returns the limit of n in each window, as [Strategy.Limit] does.
func (c *Calendar) Limit(n uint64) *weir.Limit {
	return c.Strategy.Limit(n, c.about.Window)
}

// dated is the protocol of a Calendar.
type dated struct {
	byDuration // for the cost admitted; not for the period
	of         calendar.Calendar
	name       string // in the key
	now        func() time.Time
	windows    atomic.Pointer[windows] // those that were sent last
}

// windows are three that follow each other: when each begins, and when the last one ends.
type windows [4]int64

func (d *dated) period(*weir.Request) (string, error) { return d.name, nil }

func (d *dated) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	w := d.around(instantOf(d.now()).s)
	return append(args, w[0], w[1], w[2], w[3], clamp(r.Limit), n), fits(r, r.Limit), nil
}

// around returns the window that holds an instant, in Unix seconds, between its neighbours.
func (d *dated) around(now int64) *windows {
	w := d.windows.Load()
	if w == nil || now < w[1] || now >= w[2] {
		w = new(windows)
		w[1], w[2] = d.of.Window(now)
		w[0], _ = d.of.Window(w[1] - 1)
		_, w[3] = d.of.Window(w[2])
		d.windows.Store(w)
	}
	return w
}

func (d *dated) answer(r *weir.Request, v numbers) (decision, error) {
	count, end := v[1], v[2]
	if count < 0 || !d.ends(end) {
		return decision{}, strange(v)
	}
	return decision{allowed: v[0] == 1, total: count, limit: clamp(r.Limit), at: instant{end, 0}}, nil
}

// ends reports whether a window ends at an instant: one of those that were sent, as a rule.
func (d *dated) ends(at int64) bool {
	if w := d.windows.Load(); at == w[2] || at == w[1] || at == w[3] {
		return true
	}
	if at < -last || at > last {
		return false
	}
	_, end := d.of.Window(at - 1)
	return end == at
}
