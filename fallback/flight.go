package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// flight is a question to primary for a block. Those who need one meanwhile wait for it.
type flight struct {
	done   chan struct{}
	resets uint64 // of the page, when it left

	// What came of it; written before done is closed, and read after.
	cannot bool         // primary could not say
	denial *weir.Result // what it said to need, at limit; nil if it did not deny
	need   uint64
	limit  uint64
}

// runLease decides on r from a lease, and takes a block from primary when there is none or too little of it. All that it
// waits for, flights of others and its own, has one end.
func (f *Fallback) runLease(ctx context.Context, r *weir.Request) (*weir.Result, Source, error) {
	res, by, p := f.lookUp(r, nil)
	if res != nil {
		return res, by, nil
	}
	for w := f.patience(ctx); ; w.full = false {
		if p.account == nil {
			return f.askOrLocal(ctx, r, w)
		}
		var err error
		switch {
		case p.own:
			res, err = f.fly(ctx, r, p, w)
		case f.breaker.gate.Load() != 0: // it is a probe, which nobody else waits for
			err = errCannot
		default:
			err = f.await(ctx, p.flight, w)
		}
		switch {
		case err == errCannot:
			return f.without(ctx, r)
		case res != nil || err != nil:
			return res, FromPrimary, err
		}
		if res, by, p = f.lookUp(r, p.flight); res != nil {
			return res, by, nil
		}
	}
}

// pilot is who asks for a block, or waits for whoever does.
type pilot struct {
	*flight
	own     bool
	page    *page
	account *account // nil: the ledger is full, or nothing can be leased now
	block   uint64   // to be asked for
}

// lookUp decides on r from what is known: the lease, the outcome of the flight that r has waited for, a cached denial. If
// that is not enough it returns the flight to wait for, which is r's own if there was none.
func (f *Fallback) lookUp(r *weir.Request, waited *flight) (*weir.Result, Source, pilot) {
	now, n := f.cfg.Now(), f.instances()
	page, a := f.ledger.enrol(caller{r.Key, r.Duration}, now)
	defer page.mu.Unlock()
	if a == nil {
		return f.denials.find(r, now), FromDenials, pilot{}
	}
	if !a.lease.live(now, f.cfg.Skew) {
		a.plain = later(a.plain, a.lease.until) // the window is as good as over
		a.lease = lease{}
	}
	if res := a.lease.take(r); res != nil {
		return res, FromLease, pilot{}
	}
	if waited != nil && !page.stale(a, waited.resets) {
		if res := waited.answer(r, &a.lease, now); res != nil {
			return res, FromPrimary, pilot{}
		}
	}
	if res := f.denials.find(r, now); res != nil {
		return res, FromDenials, pilot{}
	}
	if now.Before(a.plain) {
		return nil, Nobody, pilot{}
	}
	p := pilot{flight: a.flight, page: page, account: a}
	if a.flight == nil {
		a.flight = &flight{done: make(chan struct{}), resets: page.resets, need: cost(r) - a.lease.left, limit: limit(r)}
		p.flight, p.own = a.flight, true
		p.block = max(p.need, f.block(a.lease.total, p.limit, n))
	}
	return nil, Nobody, p
}

// await waits for somebody else's flight. The error is errCannot, or for the caller.
func (f *Fallback) await(ctx context.Context, other *flight, w patience) error {
	timer := time.NewTimer(time.Until(w.until))
	defer timer.Stop()
	select {
	case <-other.done:
		if other.cannot || w.over() {
			return errCannot
		}
		return nil
	case <-timer.C:
		return errCannot
	case <-ctx.Done():
		return fmt.Errorf("fallback: %w", ctx.Err())
	}
}

// answer is the denial of a flight, if it answers r too: what r lacks is no less than what was denied.
func (fl *flight) answer(r *weir.Request, l *lease, now time.Time) *weir.Result {
	if fl.denial == nil || limit(r) > fl.limit || cost(r)-l.left < fl.need || !now.Before(fl.denial.ExpiresAt) {
		return nil
	}
	return l.lessLeft(fl.denial)
}

// fly asks primary for a block, and for less when there is not so much left. It returns the decision on r, or an error as
// ask does, or neither: then the block went to others, and r begins again.
func (f *Fallback) fly(ctx context.Context, r *weir.Request, p pilot, w patience) (*weir.Result, error) {
	p.cannot = true // until there is an answer
	defer func() {
		p.page.mu.Lock()
		p.account.flight = nil
		p.page.mu.Unlock()
		close(p.done)
	}()
	for block := p.block; ; w.full = false {
		q := *r
		q.Cost = block
		res, err := f.ask(ctx, &q, w)
		if err != nil {
			p.cannot = err == errCannot && (w.full || !w.over()) // whose own time was short speaks for nobody else
			return nil, err
		}
		p.cannot = false
		if res.Allowed() {
			w.full = false
			return f.granted(ctx, r, p, &q, res, w), nil
		}
		// What a fixed window has left is what it has not counted: to ask for less is of use only if that is enough.
		if room := p.limit - min(p.limit, res.TotalRequests); block == p.need || room < p.need {
			p.denial = res
			p.page.mu.Lock()
			defer p.page.mu.Unlock()
			return p.account.lease.lessLeft(res), nil
		}
		block = max(p.need, min(block/2, f.block(res.TotalRequests, p.limit, f.instances())))
	}
}

// granted decides r from the block q that primary granted, or returns nil if there is not enough.
func (f *Fallback) granted(
	ctx context.Context, r *weir.Request, p pilot, q *weir.Request, res *weir.Result, w patience,
) *weir.Result {
	if !aligned(r, res.ExpiresAt) {
		f.noLease.Store(true)
	} else if res, ok := f.lend(r, p, q, res); ok {
		return res
	}
	// The block is for nobody else. If it is enough for r, primary has decided it.
	rest, enough := *q, q.Cost >= cost(r)
	if enough {
		rest.Cost -= cost(r)
	}
	f.giveBack(ctx, &rest, res, w)
	if enough {
		return res
	}
	return nil
}

// lend adds the block q to the lease and decides r from it, or notes until when no block can be leased, and returns false.
func (f *Fallback) lend(r *weir.Request, p pilot, q *weir.Request, res *weir.Result) (*weir.Result, bool) {
	until := f.postponed(r, res.ExpiresAt, f.cfg.Now())
	p.page.mu.Lock()
	defer p.page.mu.Unlock()
	a := p.account
	a.plain = later(a.plain, until)
	switch stale := p.page.stale(a, p.resets); {
	case stale && q.Cost < cost(r):
		return nil, true
	case stale: // for r alone: primary may have forgotten the rest, and need not have it back
		return res, true
	case !until.IsZero():
		return nil, false
	}
	a.lease.grant(q.Cost, res)
	return a.lease.take(r), true
}

// giveBack refunds r to primary, as far as that is possible.
func (f *Fallback) giveBack(ctx context.Context, r *weir.Request, taken *weir.Result, w patience) {
	if f.refunder == nil || r.Cost == 0 {
		return
	}
	q, was := *r, *taken // a probe may outlive the call
	_, err := f.put(ctx, w, func(ctx context.Context, _ ticket) (*weir.Result, error) {
		return &was, f.refunder.Refund(ctx, &q, &was)
	})
	if err == nil {
		taken.TotalRequests -= min(taken.TotalRequests, r.Cost)
	}
}
