package fallback

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/callers"
)

// ledger holds the accounts of a bounded number of callers.
type ledger struct {
	*callers.Table[account]
	opened, dropped atomic.Uint64

	mu sync.Mutex

	// unrecorded is the sharing of the callers for whom local admitted cost that no account holds,
	// until none of that cost counts any more. Guarded by mu.
	unrecorded sharing
}

// open calls f with the account of r's caller, with a lock held. It makes the account if there is
// none, and reports whether there was room; if not, the account is not kept.
func (l *ledger) open(r *weir.Request, now time.Time, f func(a *account)) bool {
	return l.Update(r, now, func(a *account) *account {
		if a == nil {
			a = &account{number: l.opened.Add(1)}
		}
		f(a)
		return a
	})
}

// update calls change with a, with a lock held, and reports true, unless a is no longer the account
// of r's caller. If a is nil, it reports whether there is still none, and calls nothing.
func (l *ledger) update(r *weir.Request, now time.Time, a *account, change func(a *account)) (current bool) {
	var found *account
	l.Find(r, now, func(own *account) {
		if found = own; found == a {
			change(a)
		}
	})
	return found == a
}

// drop records that primary will not be charged with cost that local admitted, of a limit shared
// out to n instances.
func (l *ledger) drop(cost, n uint64, now, until time.Time) {
	l.dropped.Add(cost)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.extend(l.unrecorded.among(n, now), until)
}

func (l *ledger) unrecordedNow() sharing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded
}
