package fallback

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ledger holds what is known of each caller, in a bounded number of accounts.
type ledger struct {
	seed    maphash.Seed
	pages   [pages]page
	max     int // accounts a page
	dropped atomic.Uint64
}

const pages = 64

type page struct {
	mu       sync.Mutex
	accounts map[caller]*account // guarded by mu, and so is what they hold
	resets   uint64              // guarded by mu; of all callers here

	// unowed is when the last of what local admitted to callers here, and no debt tells of, has lapsed. Guarded by mu.
	unowed time.Time
}

// caller is who is counted apart: each key, in each Duration.
type caller struct {
	key      string
	duration time.Duration
}

func newLedger(most int) *ledger {
	l := &ledger{seed: maphash.MakeSeed(), max: (most-1)/pages + 1}
	for i := range l.pages {
		l.pages[i].accounts = map[caller]*account{}
	}
	return l
}

// open locks the page of c and returns its account, or nil if it has none. The caller unlocks the page.
func (l *ledger) open(c caller) (*page, *account) {
	p := &l.pages[maphash.String(l.seed, c.key)%pages]
	p.mu.Lock()
	return p, p.accounts[c]
}

// enrol is open that makes the account if there is room for it.
func (l *ledger) enrol(c caller, now time.Time) (*page, *account) {
	p, a := l.open(c)
	if a == nil {
		a = l.admit(p, c, now)
	}
	return p, a
}

// admit makes an account for c, who has none, on the page that is open, or returns nil. An account that owes nothing makes
// room for any other; one that does, or that is in use, for none.
func (l *ledger) admit(p *page, c caller, now time.Time) *account {
	if len(p.accounts) >= l.max && !p.reclaim(now) {
		return nil
	}
	c.key = strings.Clone(c.key) // it may be six bytes of a long header
	a := &account{since: p.resets}
	p.accounts[c] = a
	return a
}

// reclaim removes an account that owes nothing. Those looked at are random, and few: a full page must not make each new
// caller pay for all others.
func (p *page) reclaim(now time.Time) bool {
	tries := 16
	for c, a := range p.accounts {
		if a.idle(now) {
			delete(p.accounts, c)
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
