package fallback

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/callers"
)

// ledger holds an account of each caller, up to a number of them.
type ledger struct {
	*callers.Table[account]
	opened, dropped atomic.Uint64

	mu sync.Mutex

	// unrecorded is the share of callers for whom local admitted something that no account tells of, and until when some
	// of it counts. Guarded by mu.
	unrecorded sharing
}

// open calls f with the account of r's caller, which it makes if there is none. It reports whether there was room; if not,
// the account is not kept.
func (l *ledger) open(r *weir.Request, now time.Time, f func(a *account)) bool {
	return l.Update(r, now, func(a *account) *account {
		if a == nil {
			a = &account{number: l.opened.Add(1)}
		}
		f(a)
		return a
	})
}

// replace gives r's caller a new account. Calls that began with the old one do not change the new one.
func (l *ledger) replace(r *weir.Request, now time.Time) (a *account, ok bool) {
	a = &account{number: l.opened.Add(1), reset: true}
	return a, l.Update(r, now, func(*account) *account { return a })
}

// unrecord notes that local admitted something in a share of one n-th that primary will not be charged with.
func (l *ledger) unrecord(n uint64, now, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unrecorded.extend(l.unrecorded.among(n, now), until)
}

func (l *ledger) unrecordedNow() sharing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrecorded
}
