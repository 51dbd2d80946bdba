package fallback

import (
	"time"

	"github.com/weirgo/weir"
)

// period is that in which primary counts a request.
type period struct {
	f *Fallback
	r *weir.Request
}

// end returns when nothing counts any more of the period that res is of, and how its count falls
// until then. The ExpiresAt of a denial is sooner, unless that is a window's end. With Tiers the
// end may be of a shorter tier.
func (p period) end(res *weir.Result, now time.Time) (end time.Time, f falling) {
	end, f = res.ExpiresAt, p.falls(res.ExpiresAt, now)
	if f != atOnce && !res.Allowed() {
		end = now.Add(p.r.Duration)
	}
	return later(end, now.Add(p.f.longest)), f
}

// falls returns how a count falls whose Result has this ExpiresAt. If primary does not say when a
// count lapses, this is one of a window if that is aligned to the Unix epoch and has begun.
func (p period) falls(expires, now time.Time) falling {
	d := p.r.Duration
	switch lapses := p.f.about.Lapses; {
	case expires.IsZero():
	case p.f.about.Window > 0, lapses == weir.LapsesWithWindow:
		return atOnce
	case lapses == weir.LapsesWithWindows:
		return withWindows
	case lapses == weir.LapsesByToken:
		return oneByOne
	case d > 0 && expires.UnixNano()%int64(d) == 0 && expires.Sub(now) <= d+10*time.Millisecond:
		return atOnce
	}
	return evenly
}

// clockSlack is by how much more time may pass on primary's clock than here between two calls; and
// for each 1024 s a second more.
const clockSlack = 100 * time.Millisecond

// fasterRate is how many times faster than here tokens may flow in at another instance, as while a
// fleet gets another rate.
const fasterRate = 8

// least returns the least that primary still counts of c at now if nothing was lost, and nothing
// taken back: 0 where that is not known.
func (p period) least(c *count, now time.Time) uint64 {
	ago := max(0, now.Sub(c.at))
	ago += clockSlack + ago/1024
	if c.total == 0 || !now.Before(c.until) {
		return 0
	}
	switch c.falls {
	case atOnce:
		return c.total
	case oneByOne: // a part of a token counts as one
		_, each, _ := p.f.about.Until(p.r, c.until)
		return c.total - min(c.total, fasterRate*uint64(ago/max(1, each))+2)
	case withWindows: // at worst all is of the window before, and rounded up
		if window := c.until.Add(-p.r.Duration).Sub(c.at); ago < window {
			return uint64(float64(c.total-1) * float64(window-ago) / float64(window))
		}
	}
	return 0
}

// below reports whether c, an answer of now, proves that primary has lost a count of
// before the call.
func (p period) below(c, known *count, now time.Time) bool {
	switch {
	case c.limit != known.limit: // of a token bucket of another rate
		return false
	case known.falls == atOnce && c.until.Sub(known.until).Abs() >= p.r.Duration/2:
		// of another window
		return false
	}
	return c.total < p.least(known, now)
}
