package near

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/budget"
	"github.com/weirgo/weir/internal/stores/guarded"
)

// fetchTimeout bounds a call of a strategy that respects its context. After it another flight for
// the key may start, even if this one still hangs: who waits for that goes on waiting.
const fetchTimeout = time.Second

// lease is what a key can spend without a call. The table's lock guards it. After a Reset, or when
// a call hangs, another is in the table, and this one is only for those who still wait: what it has
// left then is admitted to nobody.
//
// A flight makes the calls that the callers of a key wait for, in rounds. In a round one call takes
// a block for all who wait or, if the limit does not suffice, for those that fit, in order: of
// costs of 5, 2 and 4, if 6 are left, for the 5. A block that is denied is followed by a smaller
// one. If none fits, one call for each cost says until when that is denied. Who comes away
// empty-handed from three calls does not wait for a fourth: a token bucket may gain so little in
// each round that no call is denied, other instances may take what a denial has left, and those who
// come later what is left here.
type lease struct {
	budget.Budget
	limit uint64 // of the last request

	waiting   []*waiter // in order
	calls     int       // under way: 0 without a flight
	instances int       // when the last caller came
	began     time.Time // the round
}

// ended reports whether b is as good as a new lease.
func (b *lease) ended(now time.Time) bool { return b.calls == 0 && b.Ended(now) }

// waiter is a caller.
type waiter struct {
	request weir.Request
	call    *call // the last one that is for it, or nil
	calls   int   // how many there were
	res     *weir.Result
	by      weir.Source
	err     error
	done    chan struct{} // closed when it waits no longer: without res and err, it is to ask itself
}

// call takes the Cost of op, for the waiters that have it. Its answer is set before it lands.
type call struct {
	op    weir.Op
	apart bool // for waiters of one cost: its denial is theirs, they lack that much each

	res   *weir.Result // of op
	err   error
	block budget.Cost // the Cost and, unless it failed, until when it can be used
}

// flight is one of a lease. It goes on if its callers leave.
type flight struct {
	leases *Leases
	lease  *lease
	ctx    context.Context // of the first caller, without its end
}

// pace ends what b has of a token bucket at another limit: its tokens flow in at another rate now.
func (b *lease) pace(limit uint64) {
	if b.limit != limit && b.Paced() {
		b.Budget = budget.Budget{}
	}
	b.limit = limit
}

// proceed answers those who wait as far as c allows, the call that has just landed, and what is
// left. At the start of a flight c is nobody's. When no call is under way it begins a round, or
// ends the flight.
func (f flight) proceed(c *call, now time.Time) {
	l, b := f.leases, f.lease
	rest := slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		ours := w.call == c
		w.by = weir.FromLease
		if ours {
			w.by = c.op.Source
		}
		switch {
		case ours && c.err != nil:
			w.err = c.err
		case ours && c.res.Allowed(): // they get it even if it has lapsed: at the zero time nothing has
			w.res = l.spend(b, &w.request, time.Time{})
		case ours && c.apart:
			w.res = less(c.res, b.Left(now))
		default:
			w.res = l.spend(b, &w.request, now)
		}
		if w.res == nil && w.err == nil && (w.call != c || w.calls < 3) {
			return false
		}
		close(w.done)
		return true
	})
	b.waiting = append([]*waiter(nil), rest...) // it may have been long
	if b.calls == 0 && len(rest) > 0 {
		f.round(c, now)
	}
}

// round starts the calls for those who wait after c.
func (f flight) round(c *call, now time.Time) {
	l, b := f.leases, f.lease
	b.began = now
	block := b.waiting[0].request
	limit, together := l.limit(&block), uint64(0)
	room := limit - min(limit, b.Spent(now))
	if c.res != nil && !c.res.Allowed() && !c.apart { // less than was denied, with what is left
		room = min(room, b.Left(now)+c.block.N-1)
	}
	for _, w := range b.waiting {
		if n := cost(&w.request); w.request.Limit == block.Limit && n <= room-together {
			together += n
		}
	}
	// As much as the Block while there is plenty, and less near the limit, so that the other instances
	// find some budget too.
	ahead := min(uint64(l.cfg.Block), b.Lacking(room, now)/2/uint64(b.instances))
	block.Cost = max(b.Lacking(together, now), ahead)
	calls := map[weir.Request]*call{}
	for _, w := range b.waiting {
		q := block
		if together == 0 {
			q = w.request
			q.Cost = b.Lacking(cost(&q), now)
		}
		w.call = calls[q]
		if w.call == nil {
			w.call = &call{op: weir.Op{Counter: l.counter, Request: q}, apart: together == 0,
				block: budget.Cost{N: q.Cost}}
			calls[q] = w.call
			f.start(w.call)
		}
		w.calls++
	}
}

// start makes a call in the background.
func (f flight) start(c *call) {
	l, b := f.leases, f.lease
	b.calls++
	l.fetched.Add(1)
	go func() {
		bounded, cancel := context.WithTimeout(f.ctx, fetchTimeout)
		defer cancel()
		guarded.Do(func() error {
			l.counter.Do(bounded, []*weir.Op{&c.op})
			if c.op.Err != nil {
				return c.op.Err
			}
			c.res = &c.op.Result
			c.block.Until, c.block.Each, _ = l.about.Until(&c.op.Request, c.res.ExpiresAt)
			return nil
		}, func(err error) {
			now := l.now()
			defer l.callers.Lock(&c.op.Request).Unlock()
			b.calls--
			if err == nil {
				b.pace(c.op.Limit)
				b.Learn(c.block, c.res, l.skew, now)
			} else {
				c.err = fmt.Errorf("near: %v: %w", l.about, err)
			}
			f.proceed(c, now)
		})
	}()
}
