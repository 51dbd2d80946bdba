package fallback

import "time"

// pending is a call of primary that may outlast the wait of its caller, for whom local then
// decides. What local admits is a debt only if primary has not counted the request, and that is
// known when the call ends.
type pending struct {
	f *Fallback
	a *account

	// Guarded by a.mu.
	ended, counted bool      // the call has ended; primary has counted the request
	cost           uint64    // that local has admitted meanwhile, or 0
	until          time.Time // when that counts no more
	number         uint64    // of the account then
}

// owe records cost that local admitted in a, which is locked: as a debt, unless primary counts the
// request. p is nil if primary was not called.
func (p *pending) owe(a *account, cost uint64, until, now time.Time) {
	if p != nil {
		p.cost, p.until, p.number = cost, until, a.number
	}
	if p == nil || p.ended && !p.counted {
		a.addDebt(cost, until, now)
	}
}

// end records that the call has ended, and whether primary counted the request. A call that ignores
// its context ends twice: at its timeout, and when it returns.
func (p *pending) end(counted bool) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	now := p.f.cfg.Now()
	switch owed := p.cost > 0 && p.number == p.a.number; {
	case owed && !p.ended && !counted:
		p.a.addDebt(p.cost, p.until, now)
	case owed && p.ended && !p.counted && counted:
		p.a.refund(p.cost, now)
	}
	p.ended, p.counted = true, p.counted || counted
}
