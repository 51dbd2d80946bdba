package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// standing is how one caller stands with primary when a call of primary begins.
type standing struct {
	number, epoch uint64       // of the account, and of the breaker
	at            time.Time    // the call begins
	behind, reset bool         // primary has missed something of the caller, or also a reset
	backlog       weir.Backlog // what it has missed beside a reset
}

// decide has primary decide on r by run, or together with what it has missed of r's caller.
func (f *Fallback) decide(ctx context.Context, b *breaker, a *account, r *weir.Request,
	run operation) (res *weir.Result, err error) {
	s := f.standing(a, b.epoch.Load())
	switch {
	case !s.behind:
		res, err = run(ctx, r)
	case !s.reset:
		backlog := s.backlog
		res, err = f.primary.Reconcile(ctx, r, &backlog)
	}
	if s.reset || s.behind && errors.Is(err, errors.ErrUnsupported) {
		if err := f.catchUp(ctx, a, r, s.epoch); err != nil {
			return nil, err
		}
		return f.decide(ctx, b, a, r, run)
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
	s, n := standing{number: a.number, epoch: epoch, at: now, reset: now.Before(a.reset)}, a.counted.now(now)
	seed := a.epoch != epoch && n > 0
	if s.behind = s.reset || a.owed(now) > 0 || seed; !s.behind {
		return s
	}
	s.backlog = weir.Backlog{Source: fmt.Sprint(f.id, " ", a.number), Charged: a.charged,
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
		a.sharing = sharing{n, later(a.sharing.until, end)} // as local is seeded now
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
	f.stats.reconciled.Add(s.backlog.Total - min(s.backlog.Total, a.charged))
	a.charged, a.epoch = max(a.charged, s.backlog.Total), s.epoch
	return true
}

// catchUp resets, or seeds and charges, a primary that cannot do that and decide in one step.
// Concurrent calls for one caller share one such step. A step that hangs holds up no others after
// its Timeout.
func (f *Fallback) catchUp(ctx context.Context, a *account, r *weir.Request, epoch uint64) error {
	name := fmt.Sprint(r.Duration, " ", r.Key)
	_, err, _ := f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { f.turns.Forget(name) })()
		return nil, f.resetOrCharge(ctx, a, r, f.standing(a, epoch))
	})
	return err
}

// resetOrCharge is the step of catchUp. A charge whose answer is lost is repeated: a debt is
// charged at least once.
func (f *Fallback) resetOrCharge(ctx context.Context, a *account, r *weir.Request, s standing) (err error) {
	switch {
	case s.reset:
		return wrap.Supported(f.resetPrimary(ctx, r, a, s.number))
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
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.debts); err != nil && n > 0 && a.number == s.number { // primary is no Charger
		f.ledger.drop(s.backlog.Total-s.backlog.Charged, 1, now, a.debts[n-1].until)
		a.charged = max(a.charged, s.backlog.Total)
	}
	f.caughtUp(a, s)
	return nil
}
