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
	numbers, dropped atomic.Uint64

	mu sync.Mutex

	// unrecorded is the sharing of the callers for whom local admitted cost that no account holds,
	// until none of that cost counts any more. Guarded by mu.
	unrecorded sharing
}

// open returns the account of r's caller, and makes it if there is none. It is not removed until
// the caller of open, and each call of primary by then, has subtracted 1 from its users.
func (l *ledger) open(r *weir.Request, now time.Time) (a *account) {
	if !l.Update(r, now, func(found *account) *account {
		if a = found; a == nil {
			a = &account{number: l.numbers.Add(1), sharing: l.unrecordedNow()}
		}
		a.users.Add(1)
		return a
	}) {
		a.temporary = true
	}
	return a
}

// drop records that primary will not be charged with cost that local admitted, of a limit shared
// out to n instances.
func (l *ledger) drop(cost, n uint64, now, until time.Time) {
	l.dropped.Add(cost)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.hold(l.unrecorded.among(n, now), until)
}

func (l *ledger) unrecordedNow() sharing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded
}
