package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/breaker"
	"github.com/weirgo/weir/internal/wrap"
)

// standing is how one caller stands with primary when a call of primary begins.
type standing struct {
	number, epoch uint64       // of the account, and of the breaker
	at            time.Time    // the call begins
	behind        bool         // primary has missed something of the caller:
	backlog       weir.Backlog // what it has missed
}

// decide has primary decide on r by run, or together with what it has missed of r's caller.
func (f *Fallback) decide(ctx context.Context, b *breaker.Breaker, a *account, r *weir.Request,
	run operation) (res *weir.Result, err error) {
	s := f.standing(a, b.Epoch())
	if s.behind {
		res, err = f.reconcile(ctx, a, r, s, run)
	} else {
		res, err = run(ctx, r)
	}
	if err == nil {
		f.record(ctx, a, r, s, res)
	}
	return res, err
}

// standing returns how a's caller stands in this epoch of the breaker.
func (f *Fallback) standing(a *account, epoch uint64) standing {
	now := f.cfg.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	s, n := standing{number: a.number, epoch: epoch, at: now}, a.counted.now(now)
	reset, seed := now.Before(a.reset), a.epoch != epoch && n > 0
	if s.behind = reset || a.owed(now) > 0 || seed; !s.behind {
		return s
	}
	s.backlog = weir.Backlog{Reset: reset, Source: fmt.Sprint(f.id, " ", a.number), Charged: a.charged,
		Total: max(a.total, a.charged)}
	if seed {
		s.backlog.Counted = &weir.Result{State: weir.Allow, TotalRequests: n, ExpiresAt: a.counted.until}
		s.backlog.CountedAt = a.counted.at
	}
	a.sent = max(a.sent, s.backlog.Total)
	return s
}

// record records a decision of primary here and seeds local with it, unless the caller was
// reset since the call began.
func (f *Fallback) record(ctx context.Context, a *account, r *weir.Request, s standing, res *weir.Result) {
	now, n := f.cfg.Now(), f.instances()
	end, window := f.periodEnd(r, res, now)
	a.mu.Lock()
	current := f.caughtUp(a, s)
	if current && end.After(now) && (window || res.Allowed()) {
		a.counted = tally{res.TotalRequests, s.at, end, window}
	}
	if current && f.localSeeder != nil && a.owed(now) == 0 && !res.ExpiresAt.IsZero() {
		a.sharing.hold(n, end) // as local is seeded now
	}
	a.mu.Unlock()
	if current {
		f.seedLocal(ctx, r, n, res)
	}
}

// caughtUp records in a, which is locked, that primary has missed nothing of s. It reports false,
// and records nothing, if the caller was reset since.
func (f *Fallback) caughtUp(a *account, s standing) bool {
	if a.number != s.number {
		return false
	}
	if s.backlog.Reset {
		a.reset = time.Time{}
	}
	f.stats.reconciled.Add(s.backlog.Total - min(s.backlog.Total, a.charged))
	a.charged, a.epoch = max(a.charged, s.backlog.Total), s.epoch
	return true
}

// reconcile is Reconcile of primary. Where primary has no such method, it is first sent what it has
// missed, step by step. Concurrent calls for one caller share the steps. If they hang, they hold up
// no others after their Timeout.
func (f *Fallback) reconcile(
	ctx context.Context, a *account, r *weir.Request, s standing, run operation,
) (*weir.Result, error) {
	backlog := s.backlog
	res, err := f.primary.Reconcile(ctx, r, &backlog)
	switch {
	case err == nil && s.backlog.Reset:
		f.primary.Forget(r)
		return res, nil
	case !errors.Is(err, errors.ErrUnsupported):
		return res, err
	}
	name := fmt.Sprint(r.Duration, " ", r.Key)
	_, err, _ = f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { f.turns.Forget(name) })()
		return nil, f.catchUp(ctx, a, r, f.standing(a, s.epoch))
	})
	if err != nil {
		return nil, err
	}
	return run(ctx, r)
}

// catchUp resets, seeds and charges a primary that cannot do that and decide in one step. A charge
// whose answer is lost is repeated: a debt is charged at least once.
func (f *Fallback) catchUp(ctx context.Context, a *account, r *weir.Request, s standing) error {
	if s.backlog.Reset {
		if err := wrap.Supported(f.resetPrimary(ctx, r, a, s.number)); err != nil {
			return err
		}
	}
	if s.backlog.Counted != nil {
		if err := wrap.Supported(f.primary.Seed(ctx, r, s.backlog.Counted)); err != nil {
			return err
		}
	}
	debt, err := *r, error(nil)
	if debt.Cost = s.backlog.Total - s.backlog.Charged; debt.Cost > 0 {
		if err = f.primary.Charge(ctx, &debt); wrap.Supported(err) != nil {
			return err
		}
	}
	now := f.cfg.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.debts); err != nil && n > 0 && a.number == s.number { // primary is no Charger
		f.ledger.drop(debt.Cost, 1, now, a.debts[n-1].until)
		a.charged = max(a.charged, s.backlog.Total)
	}
	f.caughtUp(a, s)
	return nil
}
