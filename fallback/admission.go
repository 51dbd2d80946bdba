package fallback

import (
	"context"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// admission is what is known of an admitted request, for its Return.
type admission struct {
	f       *Fallback
	request weir.Request
	taken   weir.Result
	by      Source
	number  uint64 // of the account before it

	// What gives back to primary or local; nil if it is no weir.Admitter, or primary was charged in the
	// same step. A call of primary that is late may still write the first.
	primary, local weir.Return
}

// Admit is Run, and returns what gives cost back where r was admitted: to primary by the Return of
// primary, and to local by that of local, as far as primary was not charged with it. What was charged
// is refunded, as by Refund. It gives nothing back after a Reset here, and no more than was taken; what
// primary does not receive is lost. Of a strategy that is no weir.Admitter it is Run and Refund.
func (f *Fallback) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, nil, err
	}
	a := f.ledger.open(r, f.cfg.Now())
	defer a.users.Add(-1)
	x := &admission{f: f, request: *r, number: a.currentNumber()}
	res, by, err := f.decideBy(ctx, r, runs{admitting(&f.primary, &x.primary), admitting(&f.local, &x.local)})
	if err != nil {
		return nil, nil, err
	}
	f.stats.decided[by].Add(1)
	x.taken, x.by = *res, by
	if !res.Allowed() || by == FromPolicy {
		return res, wrap.Returning(0, nil), nil
	}
	return res, wrap.Returning(wrap.Cost(r), x.giveBack), nil
}

// admitting is Admit of s, which sets giveBack, or Run if s is no weir.Admitter.
func admitting(s *wrap.Strategy, giveBack *weir.Return) operation {
	return func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
		res, back, err := s.Admit(ctx, r)
		if err != nil && wrap.Supported(err) == nil {
			return s.Run(ctx, r)
		}
		*giveBack = back
		return res, err
	}
}

// giveBack is a weir.Return.
func (x *admission) giveBack(ctx context.Context, cost uint64) error {
	f, r := x.f, x.request
	r.Cost = cost
	now := f.cfg.Now()
	a := f.ledger.open(&r, now)
	defer a.users.Add(-1)
	known, counts := a.currentNumber() == x.number, x.taken.ExpiresAt.After(now)
	switch {
	case x.by == FromLocal && known && counts:
		return f.refund(ctx, a, &r, &x.taken, f.primary.Refund, x.toLocal)
	case x.by == FromLocal:
		return nil
	case known && counts:
		a.uncount(cost)
	}
	switch {
	case x.by == FromPrimary && x.primary != nil:
		return f.refundPrimary(ctx, a, &r, func(ctx context.Context, r *weir.Request) error {
			return x.primary(ctx, r.Cost)
		})
	case known && counts: // from a lease, or after a debt
		return f.refundPrimary(ctx, a, &r, func(ctx context.Context, r *weir.Request) error {
			return f.primary.Refund(ctx, r, &x.taken)
		})
	}
	return nil
}

func (x *admission) toLocal(ctx context.Context, own *weir.Request) error {
	if x.local == nil {
		return x.f.local.Refund(ctx, own, &x.taken)
	}
	return x.local(ctx, own.Cost)
}
