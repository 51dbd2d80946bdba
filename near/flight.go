package near

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/budget"
	"github.com/weirgo/weir/internal/safely"
	"github.com/weirgo/weir/internal/wrap"
)

// fetchTimeout bounds a call. After it another flight for the key may start, even if this one still
// hangs.
const fetchTimeout = time.Second

// lease is what a key can spend without a call. The table's lock guards it. After a Reset, or when
// a call hangs, another is in the table, and this one is only for those who still wait.
//
// A flight makes the calls that the callers of a key wait for, in rounds. In a round one call takes
// a block that suffices for all who wait. If the limit leaves less, the next block is for the first
// of them that it leaves enough for. If it does not leave enough for any, one call for each cost
// says until when that is denied.
type lease struct {
	budget.Budget

	waiting   []*waiter // in order
	calls     int       // under way: 0 without a flight
	denied    uint64    // the cost of the round's block, if it was denied: the next is smaller
	instances int       // when the last caller came
	began     time.Time // the round
}

// ended reports whether b is as good as a new lease.
func (b *lease) ended(now time.Time) bool { return b.calls == 0 && b.Ended(now) }

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
	denies  bool // its denial is theirs: they lack that much each

	res   *weir.Result // set before its answer lands, unless it failed
	block budget.Cost  // that it asks for, and the Lapser's word on res
}

// fetch decides on r when a flight has brought enough; it starts one if there is none. The flight
// goes on if its callers leave.
func (l *Leases) fetch(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	w, b := &waiter{request: *r, done: make(chan struct{})}, (*lease)(nil)
	now, instances := l.now(), wrap.Instances(l.cfg.Instances, *l.fleet.Load())
	l.callers.Update(r, now, func(found *lease) *lease {
		if b = found; b == nil || b.calls > 0 && now.Sub(b.began) >= fetchTimeout {
			b = new(lease)
		}
		b.waiting, b.instances = append(b.waiting, w), instances
		if b.calls == 0 {
			l.proceed(context.WithoutCancel(ctx), b, now)
		}
		return b
	})
	select {
	case <-w.done:
	case <-ctx.Done():
		defer l.callers.Lock(r).Unlock()
		if n := slices.Index(b.waiting, w); n >= 0 { // no answer came first
			b.waiting, w.err = slices.Delete(b.waiting, n, n+1), fmt.Errorf("near: %w", ctx.Err())
		}
	}
	return w.res, w.err
}

// reply removes the waiters that answer has a Result or an error for.
func (b *lease) reply(answer func(*waiter) (*weir.Result, error)) {
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		if w.res, w.err = answer(w); w.res == nil && w.err == nil {
			return false
		}
		close(w.done)
		return true
	})
}

// take admits r, or returns nil if too little is left.
func (l *Leases) take(b *lease, r *weir.Request, now time.Time) *weir.Result {
	return b.Take(wrap.Cost(r), l.limit(r), now)
}

// proceed begins a round, or ends the flight.
func (l *Leases) proceed(ctx context.Context, b *lease, now time.Time) {
	b.reply(func(w *waiter) (*weir.Result, error) { return l.take(b, &w.request, now), nil })
	if len(b.waiting) == 0 {
		b.waiting = nil // it may have been long
		return
	}
	b.began = now
	block := b.waiting[0].request
	limit, left := l.limit(&block), b.Left(now)
	together, room := uint64(0), limit-min(limit, b.Spent(now))
	if b.denied > 0 {
		room = min(room, left+b.denied-1)
	}
	b.denied = 0
	for _, w := range b.waiting {
		if n := wrap.Cost(&w.request); l.limit(&w.request) == limit && n <= room-together {
			together += n
		}
	}
	// As much as the Block while there is plenty, and less near the limit, so that the other instances
	// find some budget too.
	ahead := min(uint64(l.cfg.Block), (room-min(room, left))/2/uint64(b.instances))
	block.Cost = max(together-min(together, left), ahead, 1)
	calls := map[weir.Request]*call{}
	for _, w := range b.waiting {
		q := block
		if together == 0 {
			q = lacking(&w.request, left)
		}
		if w.call = calls[q]; w.call == nil {
			w.call = &call{request: q, denies: together == 0}
			calls[q] = w.call
			l.start(ctx, b, w.call)
		}
	}
}

// lacking returns r with the cost that is not left, at least 1: what is left is counted already.
func lacking(r *weir.Request, left uint64) weir.Request {
	q, n := *r, wrap.Cost(r)
	q.Cost = n - min(n-1, left)
	return q
}

// start makes a call in the background.
func (l *Leases) start(ctx context.Context, b *lease, c *call) {
	b.calls++
	l.fetched.Add(1)
	go func() {
		bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		safely.Do(func() (err error) {
			q := c.request
			if c.res, err = l.Strategy.Run(bounded, &q); err == nil {
				c.block.N = q.Cost
				c.block.Until, c.block.Each, _ = l.lapser.Lapse(&q, c.res.ExpiresAt)
			}
			return err
		}, func(err error) {
			now := l.now()
			defer l.callers.Lock(&c.request).Unlock()
			l.land(b, c, err, now)
			if b.calls--; b.calls == 0 {
				l.proceed(ctx, b, now)
			}
		})
	}()
}

// land hands out the answer to a call.
func (l *Leases) land(b *lease, c *call, err error, now time.Time) {
	if err != nil {
		err = fmt.Errorf("near: %s: %w", weir.NameOf(l), err)
	} else if b.Learn(c.block, c.res, l.skew, now); !c.res.Allowed() && !c.denies {
		b.denied = c.request.Cost
	}
	b.reply(func(w *waiter) (*weir.Result, error) {
		switch {
		case w.call != c:
		case err != nil:
			return nil, err
		case c.res.Allowed(): // those it was taken for get it even if it has lapsed meanwhile
			return l.take(b, &w.request, time.Time{}), nil
		case c.denies:
			return less(c.res, b.Left(now)), nil
		}
		return nil, nil
	})
}
