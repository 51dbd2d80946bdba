package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// missed is what primary has missed of a caller.
type missed struct {
	weir.Backlog
	reset bool
}

// decide has primary decide on r, once it knows what it missed of r's caller.
func (f *Fallback) decide(ctx context.Context, b *breaker, r *weir.Request) (*weir.Result, error) {
	epoch := b.epoch.Load()
	for {
		a, m := f.look(r, epoch)
		res, err := (*weir.Result)(nil), errors.ErrUnsupported
		if m == nil {
			res, err = f.primary.Run(ctx, r)
		} else if !m.reset {
			res, err = f.primary.Reconcile(ctx, r, &m.Backlog)
		}
		switch {
		case m != nil && errors.Is(err, errors.ErrUnsupported):
			if err := f.catchUp(ctx, r, epoch); err != nil {
				return nil, err
			}
			continue
		case err == nil && res != nil:
			f.learn(ctx, r, a, epoch, m, res)
		}
		return res, err
	}
}

// look returns the account of r's caller, nil if the ledger is full, and what primary has missed of it, nil if nothing.
func (f *Fallback) look(r *weir.Request, epoch uint64) (a *account, m *missed) {
	now := f.cfg.Now()
	if !f.ledger.open(r, now, func(found *account) {
		a = found
		if !a.behind(epoch, now) {
			return
		}
		m = &missed{reset: a.reset}
		m.Source, m.Charged, m.Total = fmt.Sprint(f.id, " ", a.number), a.charged, max(a.total, a.charged)
		if n := a.counted.now(now); a.epoch != epoch && n > 0 {
			m.Counted = &weir.Result{State: weir.Allow, TotalRequests: n, ExpiresAt: a.counted.until}
		}
		a.sent = max(a.sent, m.Total)
	}) {
		return nil, nil
	}
	return a, m
}

// catchUp resets, or seeds and charges, a primary that cannot do that and decide in one step. For each caller one call does
// so at a time, and the others wait for it. A call that hangs holds up no others after its Timeout.
func (f *Fallback) catchUp(ctx context.Context, r *weir.Request, epoch uint64) error {
	name := fmt.Sprint(r.Duration, " ", r.Key)
	_, err, _ := f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { f.turns.Forget(name) })()
		return nil, f.resetOrCharge(ctx, r, epoch)
	})
	return err
}

// resetOrCharge notes what succeeded at once, so that it is not repeated. A charge whose answer is lost is repeated: the
// caller is charged at least once.
func (f *Fallback) resetOrCharge(ctx context.Context, r *weir.Request, epoch uint64) error {
	now := f.cfg.Now()
	a, m := f.look(r, epoch)
	switch {
	case m == nil:
		return nil
	case m.reset:
		err := wrap.Supported(f.primary.Reset(ctx, r))
		if err == nil {
			f.update(r, a, func() { a.reset = false })
		}
		return err
	case m.Counted != nil:
		if err := wrap.Supported(f.primary.Seed(ctx, r, m.Counted)); err != nil {
			return err
		}
	}
	if m.Total > m.Charged {
		debt := *r
		debt.Cost = m.Total - m.Charged
		err := f.primary.Charge(ctx, &debt)
		if errors.Is(err, errors.ErrUnsupported) {
			f.update(r, a, func() {
				for _, d := range a.debts {
					f.ledger.unrecord(1, now, d.until)
				}
			})
		} else if err != nil {
			return err
		}
	}
	f.update(r, a, func() {
		a.epoch = epoch
		f.charged(a, m)
	})
	return nil
}

// charged notes that primary was charged with m.
func (f *Fallback) charged(a *account, m *missed) {
	f.stats.reconciled.Add(m.Total - min(m.Total, a.charged))
	a.charged = max(a.charged, m.Total)
}

// update calls change with a lock held, unless a is no longer the account of r's caller or there is none. It reports
// whether a still is what it was.
func (f *Fallback) update(r *weir.Request, a *account, change func()) (current bool) {
	f.ledger.Find(r, f.cfg.Now(), func(found *account) {
		if current = found == a; current && a != nil {
			change()
		}
	})
	return current
}

// learn notes a decision of primary here and seeds local with it, unless the caller was reset since the call began with a.
func (f *Fallback) learn(ctx context.Context, r *weir.Request, a *account, epoch uint64, m *missed, res *weir.Result) {
	now, n := f.cfg.Now(), f.instances()
	if f.update(r, a, func() {
		if m != nil {
			f.charged(a, m)
		}
		a.count(r, res, now)
		a.epoch = epoch
		if f.localSeeder != nil && a.owed(now) == 0 {
			a.sharing = sharing{n, res.ExpiresAt} // as local is seeded now
		}
	}) {
		f.seedLocal(ctx, r, n, res)
	}
}
