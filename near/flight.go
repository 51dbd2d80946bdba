package near

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// fetchTimeout bounds a call. After it another flight for the key may start, even if this one still
// hangs.
const fetchTimeout = time.Second

// flight makes the calls that the callers of one key wait for, in rounds. In a round one call takes
// a block that suffices for all who wait. If the limit leaves less, the next block is for the first
// of them that it leaves enough for. If it does not leave enough for any, one call for each cost
// says until when that is denied. The table's lock guards a flight.
type flight struct {
	budget  *budget   // that the callers found: after a Reset it is no longer in the table
	waiting []*waiter // in order
	calls   int       // under way
	denied  uint64    // the cost of the round's block, if it was denied: the next is smaller
	began   time.Time // the round

	instances uint64 // when the last caller came
}

// waiter is a caller.
type waiter struct {
	request weir.Request
	call    *call // the last one that is for it, or nil
	res     *weir.Result
	err     error
	done    chan struct{} // closed when res or err is set
}

// call takes request.Cost, for the waiters that have it.
type call struct {
	request weir.Request
	denies  bool          // its denial is theirs: they lack that much each
	until   time.Time     // what the Lapser says of its answer, as each
	each    time.Duration // set before the answer lands
}

// fetch decides on r when a flight has brought enough; it starts one if there is none. The flight
// goes on if its callers leave.
func (l *Leases) fetch(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	w := &waiter{request: *r, done: make(chan struct{})}
	now, instances, f := l.now(), l.instances(), (*flight)(nil)
	l.callers.Update(r, now, func(b *budget) *budget {
		if b == nil {
			b = new(budget)
		}
		if b.flight == nil || now.Sub(b.flight.began) >= fetchTimeout {
			b.flight = &flight{budget: b, began: now}
		}
		f = b.flight
		f.waiting, f.instances = append(f.waiting, w), instances
		if f.calls == 0 {
			l.proceed(context.WithoutCancel(ctx), f, now)
		}
		return b
	})
	select {
	case <-w.done:
	case <-ctx.Done():
		l.callers.Update(r, now, func(b *budget) *budget {
			f.reply(func(other *waiter) bool { return other == w })
			return b
		})
		if w.res == nil && w.err == nil { // no answer came first
			w.err = fmt.Errorf("near: %w", ctx.Err())
		}
	}
	return w.res, w.err
}

// reply removes the waiters that have their answer, as decided reports.
func (f *flight) reply(decided func(*waiter) bool) {
	f.waiting = slices.DeleteFunc(f.waiting, func(w *waiter) bool {
		if !decided(w) {
			return false
		}
		close(w.done)
		return true
	})
}

// proceed begins a round, or ends the flight.
func (l *Leases) proceed(ctx context.Context, f *flight, now time.Time) {
	b := f.budget
	f.reply(func(w *waiter) bool { return l.take(b, w, now) })
	if f.began = now; len(f.waiting) == 0 {
		if b.flight == f {
			b.flight = nil
		}
		return
	}
	block := &call{request: f.waiting[0].request}
	limit, left := l.limit(&block.request), b.left.at(now)
	together, room := uint64(0), limit-min(limit, b.spent(now))
	if f.denied > 0 {
		room = min(room, left+f.denied-1)
	}
	f.denied = 0
	for _, w := range f.waiting {
		w.call = block
		if n := wrap.Cost(&w.request); l.limit(&w.request) == limit && n <= room-together {
			together += n
		}
	}
	if together > 0 {
		// As much as the Block while there is plenty, and less near the limit, so that the other instances
		// find some budget too.
		ahead := min(uint64(l.cfg.Block), (room-min(room, left))/2/f.instances)
		block.request.Cost = max(together-min(together, left), ahead, 1)
		l.start(ctx, f, block)
		return
	}
	calls := map[[2]uint64]*call{}
	for _, w := range f.waiting {
		n := wrap.Cost(&w.request)
		same := [2]uint64{w.request.Limit, n}
		if calls[same] == nil {
			calls[same] = &call{request: w.request, denies: true}
			calls[same].request.Cost = n - min(n-1, left)
			l.start(ctx, f, calls[same])
		}
		w.call = calls[same]
	}
}

// take admits a waiter, if enough is left.
func (l *Leases) take(b *budget, w *waiter, now time.Time) bool {
	w.res = b.take(&w.request, l.limit(&w.request), now)
	return w.res != nil
}

// start makes a call in the background.
func (l *Leases) start(ctx context.Context, f *flight, c *call) {
	f.calls++
	l.fetched.Add(1)
	go func() {
		bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		var res *weir.Result
		var err error
		returned := false
		defer func() {
			if p := recover(); !returned {
				err = fmt.Errorf("near: %s panicked or ended its goroutine: %v", weir.NameOf(l), p)
			}
			now := l.now()
			l.callers.Update(&c.request, now, func(b *budget) *budget {
				l.land(f, c, res, err, now)
				if f.calls--; f.calls == 0 {
					l.proceed(ctx, f, now)
				}
				return b
			})
		}()
		q := c.request
		if res, err = l.Strategy.Run(bounded, &q); err == nil {
			c.until, c.each, _ = l.lapser.Lapse(&q, res.ExpiresAt)
		}
		returned = true
	}()
}

// land hands out the answer to a call.
func (l *Leases) land(f *flight, c *call, res *weir.Result, err error, now time.Time) {
	if err != nil {
		f.reply(func(w *waiter) bool {
			if w.call == c {
				w.err = err
			}
			return w.err != nil
		})
		return
	}
	b := f.budget
	b.learn(c, res, now)
	switch {
	case res.Allowed():
		b.lease(c, res.ExpiresAt, l.skew, now)
		lapses := b.left.until
		b.left.until = now.Add(1 << 62) // those it was taken for get it even if it has lapsed meanwhile
		f.reply(func(w *waiter) bool { return w.call == c && l.take(b, w, now) })
		b.left.until = lapses
	case c.denies:
		own := less(res, b.left.at(now))
		f.reply(func(w *waiter) bool {
			if w.call == c {
				w.res = less(own, 0)
			}
			return w.res != nil
		})
	default:
		f.denied = c.request.Cost
	}
}
