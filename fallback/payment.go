package fallback

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// settle tells primary what it must know of the caller of r before it decides: to forget, if it was told to while it was
// away; what it had counted, if it may have lost that; and what local has admitted. Those who come meanwhile wait. It
// returns the page's number of Resets, to be handed to heard with the answer to what is asked from now on.
func (f *Fallback) settle(ctx context.Context, r *weir.Request, doubts uint64) (resets uint64, err error) {
	c := caller{r.Key, r.Duration}
	for {
		now := f.cfg.Now()
		page, a := f.ledger.open(c)
		resets := page.resets
		if a == nil || !a.unsettled(doubts, now) {
			page.mu.Unlock()
			return resets, nil
		}
		wait := a.settling
		if wait == nil {
			p := a.begin(doubts, resets, now)
			page.mu.Unlock()
			return resets, f.pay(ctx, r, page, a, p)
		}
		page.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// payment is what an account owes, taken out of it while primary is told.
type payment struct {
	reset  bool
	seed   uint64
	until  time.Time // the seed's
	debts  []debt
	sum    uint64 // of the debts that have not lapsed
	doubts uint64
	resets uint64 // of the page, when it was taken out
	done   chan struct{}
}

func (a *account) begin(doubts, resets uint64, now time.Time) payment {
	p := payment{
		reset: a.reset, debts: a.debts, sum: a.owed(now),
		doubts: doubts, resets: resets, done: make(chan struct{}),
	}
	if a.doubts != doubts {
		p.seed, p.until = a.last.now(now), a.last.until
	}
	a.reset, a.debts, a.settling = false, nil, p.done
	return p
}

// pay tells primary, and puts back what it was not told. After a charge whose answer was lost it is put back too: the
// caller may be charged twice, and is never let off.
func (f *Fallback) pay(ctx context.Context, r *weir.Request, page *page, a *account, p payment) (err error) {
	told := false
	defer func() {
		now := f.cfg.Now()
		page.mu.Lock()
		switch {
		case told:
			a.doubts = p.doubts
		case !page.stale(a, p.resets): // what a Reset has forgotten meanwhile is owed no more
			a.reset = a.reset || p.reset
			for _, d := range p.debts {
				a.owe(r, d.cost, d.until, now)
			}
		}
		a.settling = nil
		page.mu.Unlock()
		close(p.done)
	}()
	if p.reset {
		if err := f.resetter.Reset(ctx, r); err != nil {
			return err
		}
		p.reset = false
	}
	if p.seed > 0 && f.seeder != nil {
		if err := f.seeder.Seed(ctx, r, &weir.Result{State: weir.Allow, TotalRequests: p.seed, ExpiresAt: p.until}); err != nil {
			return err
		}
	}
	if p.sum > 0 {
		charge := *r
		charge.Cost = p.sum
		if err := f.charger.Charge(ctx, &charge); err != nil {
			return err
		}
		f.stats.carried.Add(p.sum)
	}
	told = true
	return nil
}
