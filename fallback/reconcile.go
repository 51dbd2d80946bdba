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
	epoch   uint64        // of the breaker
	backlog *weir.Backlog // what primary has missed of the caller; nil: nothing
}

// decide has primary decide on the request, together with what it has missed of the caller. A primary
// that is no weir.Reconciler is first sent that, step by step.
func (v *visit) decide(ctx context.Context) (res *weir.Result, err error) {
	s := v.standing()
	if s.backlog != nil {
		v.leave()
		if res, err = v.primary.Reconcile(ctx, v.r, s.backlog); errors.Is(err, errors.ErrUnsupported) {
			s, err = v.catchUpInTurn(ctx)
		}
	}
	if err == nil && res == nil {
		res, err = v.doPrimary(ctx, weir.OpRun, v.r, nil)
	}
	if err == nil {
		v.record(ctx, s, res)
	}
	return res, err
}

// standing returns how the caller stands with primary.
func (v *visit) standing() standing {
	a, now := v.a, v.began
	a.mu.Lock()
	defer a.mu.Unlock()
	s, n := standing{epoch: v.b.Epoch()}, a.counted.now(now)
	reset, seed := now.Before(a.reset), a.epoch != s.epoch && n > 0
	if a.owed(now) == 0 && !reset && !seed {
		return s
	}
	a.sent = max(a.sent, a.total, a.charged)
	s.backlog = &weir.Backlog{Reset: reset, CountedAt: a.counted.at, Source: fmt.Sprint(v.id, " ", a.number),
		Charged: a.charged, Total: max(a.total, a.charged)}
	if seed {
		s.backlog.Counted = &weir.Result{State: weir.Allow, TotalRequests: n, ExpiresAt: a.counted.until}
	}
	return s
}

// record records a decision of primary here and seeds local with its share of it, unless the caller
// was reset since the call began. That local may have no room for the count does not matter: then
// it has none for the caller's requests either.
func (v *visit) record(ctx context.Context, s standing, res *weir.Result) {
	now, n, a := v.cfg.Now(), uint64(v.Instances()), v.a
	end, window := v.periodEnd(res, now)
	a.mu.Lock()
	v.caughtUp(s)
	if end.After(now) && (window || res.Allowed()) {
		a.counted = tally{res.TotalRequests, v.began, end, window}
	}
	seeds := !a.replaced.Load() && v.localSeeder != nil && res.TotalRequests > 0 && !res.ExpiresAt.IsZero()
	if seeds && a.owed(now) == 0 {
		a.sharing.hold(n, end)
	}
	a.mu.Unlock()
	if seeds {
		counted := *res
		counted.TotalRequests = share(res.TotalRequests, n)
		_ = v.localSeeder.Seed(ctx, v.toShare(n), &counted)
	}
}

// caughtUp records in the account, which is locked, that primary has missed nothing of s.
func (v *visit) caughtUp(s standing) {
	a := v.a
	a.epoch = s.epoch
	if b := s.backlog; b != nil {
		if b.Reset {
			a.reset = time.Time{}
		}
		v.stats.reconciled.Add(b.Total - min(b.Total, a.charged))
		a.charged = max(a.charged, b.Total)
	}
}

// catchUpInTurn has primary catch up, and returns with what. Concurrent calls for one caller share
// that. If it hangs, it holds up no others after its Timeout.
func (v *visit) catchUpInTurn(ctx context.Context) (standing, error) {
	name := fmt.Sprint(v.r.Duration, " ", v.r.Key)
	sent, err, _ := v.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { v.turns.Forget(name) })()
		s := v.standing()
		return s, v.catchUp(ctx, s)
	})
	return sent.(standing), err
}

// catchUp resets, seeds and charges a primary that cannot do that and decide in one step. A charge
// whose answer is lost is repeated: a debt is charged at least once.
func (v *visit) catchUp(ctx context.Context, s standing) (err error) {
	b := s.backlog
	if b == nil {
		return nil
	}
	if b.Reset {
		err = wrap.Supported(v.primary.Reset(ctx, v.r))
	}
	if err == nil && b.Counted != nil {
		err = wrap.Supported(v.primary.Seed(ctx, v.r, b.Counted))
	}
	debt := *v.r
	if debt.Cost = b.Total - b.Charged; err == nil && debt.Cost > 0 {
		err = v.primary.Charge(ctx, &debt)
	}
	if wrap.Supported(err) != nil {
		return err
	}
	a := v.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.debts); err != nil && n > 0 { // primary is no Charger
		v.ledger.drop(debt.Cost, 1, v.cfg.Now(), a.debts[n-1].until)
		a.charged = max(a.charged, b.Total)
	}
	v.caughtUp(s)
	return nil
}
