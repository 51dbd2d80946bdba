package fallback

import (
	"time"

	"github.com/weirgo/weir"
)

// lease is a caller's blocks of one window: cost that primary has counted and that is given out here. The page's mu
// guards it.
type lease struct {
	until   time.Time // end of the window
	total   uint64    // what primary had counted in it, at the last block, all blocks included
	granted uint64    // what the blocks were worth
	left    uint64    // of granted
}

// leases reports whether r may be decided from a lease.
func (f *Fallback) leases(r *weir.Request) bool {
	return f.cfg.Lease > 0 && cost(r) <= limit(r) && !f.noLease.Load()
}

// postponed returns the zero time if a window that ends at end can be leased now, and else when to ask for the next block.
//
// An end more than a Duration away, and Skew, is that of a window to come, by a clock that is further ahead; or primary is
// no fixed window, but counts in this window and the next. From the first one on only what cannot be the latter is leased.
func (f *Fallback) postponed(r *weir.Request, end, now time.Time) time.Time {
	skew := f.cfg.Skew
	most := r.Duration + skew
	if f.ahead.Load() {
		most = r.Duration - skew
	}
	switch {
	case end.Sub(now) > most:
		f.ahead.Store(true)
		return end.Add(skew - r.Duration)
	case !now.Add(skew).Before(end): // as good as over
		return later(end, now).Add(skew)
	}
	return time.Time{}
}

// live reports whether the lease is still good.
func (l *lease) live(now time.Time, skew time.Duration) bool { return now.Add(skew).Before(l.until) }

// used is what is counted of the window's total, as far as this instance knows.
func (l *lease) used() uint64 { return l.total - min(l.total, l.left) }

// take decides r from the block, if it is enough to say. A lower limit than it was taken under holds at once.
func (l *lease) take(r *weir.Request) *weir.Result {
	c := cost(r)
	switch {
	case c > l.left:
		return nil
	case l.used() > limit(r)-c:
		return &weir.Result{TotalRequests: l.used(), ExpiresAt: l.until}
	}
	l.left -= c
	return &weir.Result{State: weir.Allow, TotalRequests: l.used(), ExpiresAt: l.until}
}

// grant adds a block. One of a new window ends what is left of the old one.
func (l *lease) grant(block uint64, res *weir.Result) {
	if !l.until.Equal(res.ExpiresAt) {
		*l = lease{until: res.ExpiresAt}
	}
	l.total = max(l.total, res.TotalRequests)
	l.granted = plus(l.granted, block)
	l.left = plus(l.left, block)
}

// block is how much to take at once, of what remains below limit: k while there is plenty, and then so little that the
// other n-1 instances find something too, down to one.
func (f *Fallback) block(total, limit, n uint64) uint64 {
	if total >= limit {
		return 1
	}
	return max(1, min(uint64(f.cfg.Lease), (limit-total)/(2*n)))
}

// lessLeft is a denial of primary's, less what this instance has not given out of what primary counts.
func (l *lease) lessLeft(denial *weir.Result) *weir.Result {
	res := *denial
	if l.until.Equal(res.ExpiresAt) {
		res.TotalRequests -= min(res.TotalRequests, l.left)
	}
	return &res
}
