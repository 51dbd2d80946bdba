package fallback

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// ledger holds an account of each caller, up to a number of them.
type ledger struct {
	seed    maphash.Seed
	pages   [pages]page
	max     int // accounts a page
	dropped atomic.Uint64
}

const pages = 64

// page is a part of the ledger.
type page struct {
	mu       sync.Mutex
	accounts map[caller]*account // guarded by mu, as are the accounts

	// floor is the highest running total of an account that was removed. New accounts start there. Guarded by mu.
	floor uint64

	// unrecorded is the share of callers for whom local admitted something that no account tells of, and until when some
	// of it counts. Guarded by mu.
	unrecorded sharing
}

// caller is what is counted apart: a key in a Duration.
type caller struct {
	key      string
	duration time.Duration
}

func callerOf(r *weir.Request) caller { return caller{r.Key, r.Duration} }

func newLedger(most int) *ledger {
	l := &ledger{seed: maphash.MakeSeed(), max: (most-1)/pages + 1}
	for i := range l.pages {
		l.pages[i].accounts = map[caller]*account{}
	}
	return l
}

// lock locks the page of c and returns its account, or nil if it has none. The caller unlocks the page.
func (l *ledger) lock(c caller) (*page, *account) {
	p := &l.pages[maphash.String(l.seed, c.key)%pages]
	p.mu.Lock()
	return p, p.accounts[c]
}

// lockOrAdd is lock that adds an account if there is room for it.
func (l *ledger) lockOrAdd(c caller, now time.Time) (*page, *account) {
	p, a := l.lock(c)
	if a == nil && (len(p.accounts) < l.max || p.reclaim(now)) {
		a = p.replace(c)
	}
	return p, a
}

// replace gives c a new account. Calls that began with the old one do not change the new one.
func (p *page) replace(c caller) *account {
	if old := p.accounts[c]; old != nil {
		p.remove(c, old)
	}
	c.key = strings.Clone(c.key) // it may be a part of a long header
	a := &account{total: p.floor, charged: p.floor}
	p.accounts[c] = a
	return a
}

func (p *page) remove(c caller, a *account) {
	p.floor = max(p.floor, a.total, a.charged, a.sent)
	delete(p.accounts, c)
}

// reclaim removes an account that owes nothing. It looks at a few of them, in random order: a full page must not make each
// new caller pay for all others.
func (p *page) reclaim(now time.Time) bool {
	tries := 16
	for c, a := range p.accounts {
		if a.idle(now) {
			p.remove(c, a)
			return true
		}
		if tries--; tries == 0 {
			break
		}
	}
	return false
}

// size returns the number of accounts.
func (l *ledger) size() (n int) {
	for i := range l.pages {
		p := &l.pages[i]
		p.mu.Lock()
		n += len(p.accounts)
		p.mu.Unlock()
	}
	return n
}
