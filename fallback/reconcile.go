package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir"
)

// pending is what primary has to be charged for a caller before it decides.
type pending struct {
	backlog    weir.Backlog
	reset      bool
	repeatable bool          // by Reconcile
	turn       chan struct{} // otherwise, to be closed when it is another call's turn
}

// decide has primary decide on r, once it knows what it missed of r's caller.
func (f *Fallback) decide(ctx context.Context, b *breaker, r *weir.Request) (*weir.Result, error) {
	epoch := b.epoch.Load()
	a, missed, err := f.missed(ctx, r, epoch)
	if err != nil {
		return nil, err
	}
	var res *weir.Result
	if missed == nil {
		res, err = f.primary.Run(ctx, r)
	} else {
		res, err = f.reconcile(ctx, r, a, missed)
	}
	if err != nil || res == nil {
		return nil, err
	}
	f.cacheResult(ctx, r, a, epoch, res)
	return res, nil
}

// missed returns r's account, nil if the ledger is full, and what primary has missed of it, nil if nothing. It waits while
// another call does for the account what must not be done twice.
func (f *Fallback) missed(ctx context.Context, r *weir.Request, epoch uint64) (*account, *pending, error) {
	for {
		a, m, turn := f.look(r, epoch)
		if turn == nil {
			return a, m, nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, nil, errUndecided
		}
	}
}

// look is missed without the wait: turn is closed when it is time to look again.
func (f *Fallback) look(r *weir.Request, epoch uint64) (a *account, m *pending, turn chan struct{}) {
	now := f.cfg.Now()
	p, a := f.ledger.lockOrAdd(callerOf(r), now)
	defer p.mu.Unlock()
	if a == nil || !a.behind(epoch, now) {
		return a, nil, nil
	}
	m = &pending{
		backlog:    weir.Backlog{Source: f.id, Charged: a.charged, Total: max(a.total, a.charged)},
		reset:      a.reset,
		repeatable: !a.reset && f.reconciler != nil && !f.noReconcile.Load(),
	}
	if n := a.counted.now(now); a.epoch != epoch && n > 0 {
		m.backlog.Counted = &weir.Result{State: weir.Allow, TotalRequests: n, ExpiresAt: a.counted.until}
	}
	if !m.repeatable {
		if time.Now().Before(a.busy) {
			return a, nil, a.turn
		}
		a.turn, a.busy = make(chan struct{}), time.Now().Add(f.cfg.Timeout) // a call that hangs for longer holds nobody else
		m.turn = a.turn
	}
	a.sent = max(a.sent, m.backlog.Total)
	return a, m, nil
}

// behind reports whether primary lacks something of the caller before it decides.
func (a *account) behind(epoch uint64, now time.Time) bool {
	return a.reset || a.owed(now) > 0 || a.epoch != epoch && a.counted.now(now) > 0
}

// reconcile tells primary what it missed and has it decide on r. Each part that succeeded is noted at once, so that it is
// not repeated.
func (f *Fallback) reconcile(ctx context.Context, r *weir.Request, a *account, m *pending) (*weir.Result, error) {
	if !m.repeatable {
		defer f.release(r, m.turn)
	}
	if m.reset {
		if err := f.resetter.Reset(ctx, r); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		f.update(r, a, func() { a.reset = false })
	}
	charged := func() {
		f.stats.reconciled.Add(m.backlog.Total - min(m.backlog.Total, a.charged))
		a.charged = max(a.charged, m.backlog.Total)
	}
	if m.repeatable {
		res, err := f.reconciler.Reconcile(ctx, r, &m.backlog)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			f.noReconcile.Store(true) // the next call seeds and charges
			return nil, errUndecided
		case err == nil && res != nil:
			f.update(r, a, charged)
		}
		return res, err
	}
	if err := f.seedAndCharge(ctx, r, &m.backlog); err != nil {
		return nil, err
	}
	f.update(r, a, charged)
	return f.primary.Run(ctx, r)
}

// seedAndCharge does what it can for a primary that is no weir.Reconciler. A charge whose answer is lost is repeated, so
// that the caller is charged at least once.
func (f *Fallback) seedAndCharge(ctx context.Context, r *weir.Request, b *weir.Backlog) error {
	if b.Counted != nil && f.seeder != nil {
		if err := f.seeder.Seed(ctx, r, b.Counted); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	if b.Total > b.Charged && f.charger != nil {
		debt := *r
		debt.Cost = b.Total - b.Charged
		if err := f.charger.Charge(ctx, &debt); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// update calls change under the mu of a's page, unless a is no longer the account of r's caller.
func (f *Fallback) update(r *weir.Request, a *account, change func()) {
	p, current := f.ledger.lock(callerOf(r))
	defer p.mu.Unlock()
	if current == a {
		change()
	}
}

// release ends a turn.
func (f *Fallback) release(r *weir.Request, turn chan struct{}) {
	p, a := f.ledger.lock(callerOf(r))
	if a != nil && a.turn == turn {
		a.busy = time.Time{}
	}
	p.mu.Unlock()
	close(turn)
}

// cacheResult stores a decision of primary here and in local, unless the caller was reset since the call began with a.
func (f *Fallback) cacheResult(ctx context.Context, r *weir.Request, a *account, epoch uint64, res *weir.Result) {
	now, n := f.cfg.Now(), f.instances()
	p, current := f.ledger.lock(callerOf(r))
	if current != a {
		p.mu.Unlock()
		return
	}
	if a != nil {
		if f.reconciler != nil || f.seeder != nil {
			a.count(r, res, now)
		}
		a.epoch = epoch
		if f.localSeeder != nil && a.owed(now) == 0 {
			a.sharing = sharing{n, res.ExpiresAt} // as local is seeded now
		}
	}
	p.mu.Unlock()
	f.seedLocal(ctx, r, n, res)
}
