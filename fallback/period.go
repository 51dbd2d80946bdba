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

// end returns when nothing counts any more of the period that res is of, and how its count lapses
// until then. If primary does not say how, ExpiresAt is taken for the end of a window if that is
// aligned to the Unix epoch and has begun. The ExpiresAt of a denial is sooner than the end, unless
// that is a window's. With Tiers the end may be of a shorter tier.
func (p period) end(res *weir.Result, now time.Time) (end time.Time, lapses weir.Lapse) {
	d, about := p.r.Duration, p.f.about
	end, lapses = res.ExpiresAt, about.Lapses
	unknown := lapses == weir.LapsesAnyhow || lapses == weir.LapsesAtOnce
	switch {
	case end.IsZero():
		lapses = weir.LapsesAnyhow
	case about.Window > 0,
		unknown && d > 0 && end.UnixNano()%int64(d) == 0 && end.Sub(now) <= d+10*time.Millisecond:
		lapses = weir.LapsesWithWindow
	}
	if lapses != weir.LapsesWithWindow && !res.Allowed() {
		end = now.Add(d)
	}
	return later(end, now.Add(p.f.longest)), lapses
}

// clockSlack is by how much more time may pass on primary's clock than here between two calls; and
// for each 1024 s a second more.
const clockSlack = 100 * time.Millisecond

// fasterRate is how many times faster than here tokens may flow in at another instance, as while a
// fleet gets another rate.
const fasterRate = 8

// below reports whether c, an answer of now, proves that primary has lost a count of before the
// call: it is less than the least that primary still counts of that, if nothing was taken back.
func (p period) below(c, known *count, now time.Time) bool {
	// of another limit is a token bucket of another rate
	if c.limit != known.limit || known.total == 0 || !now.Before(known.until) {
		return false
	}
	ago := max(0, now.Sub(known.at))
	ago += clockSlack + ago/1024
	least := uint64(0) // where it is not known
	switch known.lapses {
	case weir.LapsesWithWindow:
		if c.until.Sub(known.until).Abs() < p.r.Duration/2 { // else of another window
			least = known.total
		}
	case weir.LapsesByToken: // a part of a token counts as one
		_, each, _ := p.f.about.Until(p.r, known.until)
		least = known.total - min(known.total, fasterRate*uint64(ago/max(1, each))+2)
	case weir.LapsesWithWindows: // at worst all is of the window before, and rounded up
		if window := known.until.Add(-p.r.Duration).Sub(known.at); ago < window {
			least = uint64(float64(known.total-1) * float64(window-ago) / float64(window))
		}
	}
	return c.total < least
}
