package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
)

// Peek tells the Result that Run would give, and counts nothing. It asks primary, or local where local would decide, and
// where primary is yet to be told what local admitted. It uses up no probe. If the one to ask is no weir.Peeker, the error
// is errors.ErrUnsupported.
func (f *Fallback) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := sound(ctx, r); err != nil {
		return nil, err
	}
	l := f.leaseOf(r)
	left := l // taken from, and then thrown away
	if res := left.take(r); res != nil {
		return res, nil
	}
	if res := f.denials.find(r, f.cfg.Now()); res != nil {
		return res, nil
	}
	if f.current(r) {
		if res, err := f.peekPrimary(ctx, r, &l); err != errCannot {
			return res, err
		}
	}
	if f.cfg.OnFail != FailLocal {
		return f.policy(r), nil
	}
	return f.peekLocal(ctx, r)
}

// peekPrimary asks primary for what r lacks: what is left of the lease is counted there.
func (f *Fallback) peekPrimary(ctx context.Context, r *weir.Request, l *lease) (*weir.Result, error) {
	p, ok := f.primary.(weir.Peeker)
	if !ok {
		return nil, unsupported("Peeker")
	}
	lacking := *r
	lacking.Cost = cost(r) - l.left
	// Without a ticket, and so without a verdict: that it can read does not show that primary can count.
	res, err := f.call(ctx, ticket{term: noTerm}, func(ctx context.Context, _ ticket) (*weir.Result, error) {
		return p.Peek(ctx, &lacking)
	}, f.patience(ctx))
	if err != nil || res.Allowed() {
		return res, err
	}
	return l.lessLeft(res), nil
}

func (f *Fallback) peekLocal(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	p, ok := f.local.(weir.Peeker)
	if !ok {
		return nil, unsupported("Peeker")
	}
	mine := part(r, f.instances())
	res, err := p.Peek(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("fallback: local: %w", err)
	}
	return f.whole(r, mine, res), nil
}

// leaseOf returns a copy of the lease that r would be decided from, with nothing left if there is none.
func (f *Fallback) leaseOf(r *weir.Request) (l lease) {
	if !f.leases(r) {
		return l
	}
	now := f.cfg.Now()
	page, a := f.ledger.open(caller{r.Key, r.Duration})
	defer page.mu.Unlock()
	if a != nil && a.lease.live(now, f.cfg.Skew) {
		l = a.lease
	}
	return l
}

// current reports whether primary may be asked about r as things stand.
func (f *Fallback) current(r *weir.Request) bool {
	if f.breaker.gate.Load() != 0 {
		return false
	}
	now := f.cfg.Now()
	page, a := f.ledger.open(caller{r.Key, r.Duration})
	defer page.mu.Unlock()
	return a == nil || !a.unsettled(f.breaker.doubts.Load(), now)
}

// Refund gives back what Run took for r and reported in taken: to local, if local admitted it and primary does not know
// yet; to the lease; or to primary, if it is a weir.Refunder. When primary cannot be told the refund is lost: the caller
// is then denied a little early. Taken tells the period, and not who admitted: of two that admitted in one period, local
// is given back to first. Where local admitted what the ledger does not tell of, as there was no room (Stats.Dropped) or
// primary is no weir.Charger, refunds of that period, and of those that end before, are lost too, that caller's and those
// of about one in 64 others: primary must not give back what it has not counted.
func (f *Fallback) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	if err := sound(ctx, r); err != nil {
		return err
	}
	now := f.cfg.Now()
	if !taken.Allowed() || !taken.ExpiresAt.After(now) {
		return nil
	}
	defer f.denials.drop(r)
	page, a := f.openSettled(ctx, caller{r.Key, r.Duration})
	owed := a != nil && a.forgive(r, taken)
	leased := !owed && a != nil && a.lease.takeBack(r, taken)
	known := taken.ExpiresAt.After(page.unowed)
	if a != nil && !owed && !leased && known {
		a.last.total -= min(a.last.total, cost(r)) // lest it is told to primary after an outage
	}
	page.mu.Unlock()
	switch {
	case owed:
		return f.refundLocal(ctx, r, taken)
	case leased || !known || f.refunder == nil:
		return nil
	}
	q, was := *r, *taken // a probe may outlive the call
	_, err := f.put(ctx, f.patience(ctx), func(ctx context.Context, _ ticket) (*weir.Result, error) {
		return &was, f.refunder.Refund(ctx, &q, &was)
	})
	if err != errCannot {
		return err
	}
	return nil
}

// openSettled opens the account of c when nobody is paying its debts: until then it is open who knows of them. It waits no
// longer than for primary.
func (f *Fallback) openSettled(ctx context.Context, c caller) (*page, *account) {
	page, a := f.ledger.open(c)
	if a == nil || a.settling == nil {
		return page, a
	}
	ctx, cancel := context.WithDeadline(ctx, f.patience(ctx).until)
	defer cancel()
	for a != nil && a.settling != nil && ctx.Err() == nil {
		wait := a.settling
		page.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		page, a = f.ledger.open(c)
	}
	return page, a
}

func (f *Fallback) refundLocal(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	p, ok := f.local.(weir.Refunder)
	if !ok {
		return nil
	}
	return p.Refund(ctx, part(r, f.instances()), taken)
}

// takeBack puts r back into the block it was taken from, and reports whether there is one. It never holds more than was
// granted: to give back twice is no profit.
func (l *lease) takeBack(r *weir.Request, taken *weir.Result) bool {
	if !l.until.Equal(taken.ExpiresAt) {
		return false
	}
	l.left = min(l.granted, plus(l.left, cost(r)))
	return true
}

func unsupported(what string) error {
	return fmt.Errorf("fallback: not a weir.%s: %w", what, errors.ErrUnsupported)
}
