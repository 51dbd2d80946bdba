package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// standing is how one caller stands with primary when a call of primary begins.
type standing struct {
	account *account // nil: the ledger is full
	epoch   uint64
	behind  bool         // primary has missed something of the caller
	reset   bool         // namely a reset
	backlog weir.Backlog // and this
}

// decide has primary decide on r, together with or after what it has missed of r's caller.
func (f *Fallback) decide(ctx context.Context, b *breaker, r *weir.Request) (res *weir.Result, err error) {
	s := f.standing(r, b.epoch.Load())
	switch {
	case !s.behind:
		res, err = f.primary.Run(ctx, r)
	case !s.reset:
		backlog := s.backlog
		res, err = f.primary.Reconcile(ctx, r, &backlog)
	}
	if s.reset || s.behind && errors.Is(err, errors.ErrUnsupported) {
		if err := f.catchUp(ctx, r, s.epoch); err != nil {
			return nil, err
		}
		return f.decide(ctx, b, r)
	}
	if err == nil {
		f.recordResult(ctx, r, s, res)
	}
	return res, err
}

// standing returns how r's caller stands in this epoch of the breaker.
func (f *Fallback) standing(r *weir.Request, epoch uint64) standing {
	s, now := standing{epoch: epoch}, f.cfg.Now()
	if !f.ledger.open(r, now, func(a *account) {
		s.account, s.reset, s.behind = a, a.reset, a.behind(epoch, now)
		if !s.behind {
			return
		}
		s.backlog.Source = fmt.Sprint(f.id, " ", a.number)
		s.backlog.Charged, s.backlog.Total = a.charged, max(a.total, a.charged)
		if n := a.counted.now(now); a.epoch != epoch && n > 0 {
			s.backlog.Counted = &weir.Result{State: weir.Allow, TotalRequests: n, ExpiresAt: a.counted.until}
		}
		a.sent = max(a.sent, s.backlog.Total)
	}) {
		s.account = nil
	}
	return s
}

// recordResult records a decision of primary here and seeds local with it, unless the caller was
// reset since the call began.
func (f *Fallback) recordResult(ctx context.Context, r *weir.Request, s standing, res *weir.Result) {
	now, n := f.cfg.Now(), f.instances()
	if f.ledger.update(r, now, s.account, func(a *account) {
		f.charged(a, s)
		a.count(r, res, now)
		a.epoch = s.epoch
		if f.localSeeder != nil && a.owed(now) == 0 {
			a.sharing = sharing{n, res.ExpiresAt} // as local is seeded now
		}
	}) {
		f.seedLocal(ctx, r, n, res)
	}
}

// charged records that primary was charged with the backlog of s.
func (f *Fallback) charged(a *account, s standing) {
	f.stats.reconciled.Add(s.backlog.Total - min(s.backlog.Total, a.charged))
	a.charged = max(a.charged, s.backlog.Total)
}

// catchUp resets, or seeds and charges, a primary that cannot do that and decide in one step.
// Concurrent calls for one caller share one such step. A step that hangs holds up no others after
// its Timeout.
func (f *Fallback) catchUp(ctx context.Context, r *weir.Request, epoch uint64) error {
	name := fmt.Sprint(r.Duration, " ", r.Key)
	_, err, _ := f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { f.turns.Forget(name) })()
		return nil, f.resetOrCharge(ctx, r, f.standing(r, epoch))
	})
	return err
}

// resetOrCharge is the step of catchUp. A charge whose answer is lost is repeated: a debt is
// charged at least once.
func (f *Fallback) resetOrCharge(ctx context.Context, r *weir.Request, s standing) (err error) {
	switch {
	case s.reset:
		return wrap.Supported(f.resetPrimary(ctx, r, s.account))
	case s.backlog.Counted != nil:
		if err := wrap.Supported(f.primary.Seed(ctx, r, s.backlog.Counted)); err != nil {
			return err
		}
	}
	if debt := *r; s.backlog.Total > s.backlog.Charged {
		debt.Cost = s.backlog.Total - s.backlog.Charged
		if err = f.primary.Charge(ctx, &debt); wrap.Supported(err) != nil {
			return err
		}
	}
	now := f.cfg.Now()
	f.ledger.update(r, now, s.account, func(a *account) {
		a.epoch = s.epoch
		if n := len(a.debts); err != nil && n > 0 { // primary is no Charger
			f.ledger.drop(s.backlog.Total-s.backlog.Charged, 1, now, a.debts[n-1].until)
			a.charged = max(a.charged, s.backlog.Total)
		}
		f.charged(a, s)
	})
	return nil
}
