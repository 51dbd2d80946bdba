package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// ErrDenyListFull is returned by [DenyList.Add] when MaxEntries entries are listed and none has
// ended.
var ErrDenyListFull = errors.New("httplimit: deny list is full")

const (
	defaultMaxEntries = 10_000

	// purgeEvery bounds how often the penalty box searches a full list for ended entries.
	purgeEvery = time.Second
)

// DenyEntry is one line of a [DenyList]: either a Key or a Prefix.
type DenyEntry struct {
	Key    string       // an extracted key; 1 to 1024 bytes
	Policy string       // the policy whose own Extractor extracts the Key; empty: Config's
	Prefix netip.Prefix // of the client's address; masked, and IPv4 if it is IPv4-mapped
	Until  time.Time    // when the entry ends; the zero time: never

	Penalty bool // a penalty box has listed it; Add and Remove ignore this
}

// DenyListConfig configures a [DenyList]; the zero value is the documented default.
type DenyListConfig struct {
	// MaxEntries bounds the entries that Add makes. When so many are listed and none has ended, Add
	// fails: an entry is never dropped to make room. 0: 10,000. An entry takes about 150 bytes and
	// its key.
	MaxEntries int

	// MaxPenalties bounds the entries that a penalty box makes; they do not count towards
	// MaxEntries. When so many are listed, further callers are not. 0: as MaxEntries.
	MaxPenalties int

	// Now is the clock that ends entries. nil: time.Now.
	Now func() time.Time
}

// DenyList is a list of callers that are refused before any Strategy runs. It can be changed at run
// time and is safe for concurrent use; several middlewares may share one. A lookup takes a read
// lock, one map access for the key, and one for each different prefix length on the list; in an
// empty list, only an atomic load.
type DenyList struct {
	max          int
	maxPenalties int
	now          func() time.Time

	size     atomic.Int64 // of listed; written under mu
	prefixes atomic.Int64 // how many of listed are prefixes; written under mu

	mu        sync.RWMutex
	listed    map[caller]listing   // guarded by mu
	lengths   map[prefixLength]int // guarded by mu; how many prefixes there are of each length
	penalties int                  // guarded by mu; how many entries are penalties
	purged    time.Time            // guarded by mu; when a full list was last searched
}

// caller is whom an entry is for: the Policy and the Key, or the Prefix, masked.
type caller struct {
	policy, key string
	prefix      netip.Prefix
}

func callerOf(e DenyEntry) caller {
	if e.Key != "" {
		return caller{policy: e.Policy, key: e.Key}
	}
	return caller{prefix: clientaddr.PlainPrefix(e.Prefix).Masked()}
}

// listing is the end of an entry and its origin.
type listing struct {
	until   time.Time // zero: never
	penalty bool      // by a penalty box
	forget  func()    // takes back the denials that a penalty box has counted; nil: there are none
}

// prefixLength is a length of prefixes of one family: a /32 of IPv4 holds no IPv6 address.
type prefixLength struct {
	is4  bool
	bits int
}

// NewDenyList returns an empty list. It panics if a bound is negative.
func NewDenyList(cfg DenyListConfig) *DenyList {
	if cfg.MaxEntries < 0 || cfg.MaxPenalties < 0 {
		panic(fmt.Sprintf("httplimit: NewDenyList: MaxEntries is %d, MaxPenalties %d", cfg.MaxEntries,
			cfg.MaxPenalties))
	}
	l := &DenyList{
		max:     cmp.Or(cfg.MaxEntries, defaultMaxEntries),
		now:     cfg.Now,
		listed:  make(map[caller]listing),
		lengths: make(map[prefixLength]int),
	}
	l.maxPenalties = cmp.Or(cfg.MaxPenalties, l.max)
	if l.now == nil {
		l.now = time.Now
	}
	return l
}

// Add lists e, or replaces the end of an entry that is listed already. An e that has ended removes
// the entry. Add fails with [ErrDenyListFull], or if e does not have exactly one of Key and Prefix.
func (l *DenyList) Add(e DenyEntry) error {
	if (e.Key == "") == !e.Prefix.IsValid() {
		return errors.New("httplimit: a deny list entry is either a key or a prefix")
	}
	if len(e.Key) > maxKeyLen {
		return tooLong("the deny list entry", len(e.Key))
	}
	now, c := l.now(), callerOf(e)
	if over(e.Until, now) {
		l.Remove(e)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old, listed := l.listed[c]
	if (!listed || old.penalty) && l.full(false) {
		l.purge(now)
		old, listed = l.listed[c]
	}
	if (!listed || old.penalty) && l.full(false) {
		return fmt.Errorf("%w: %d entries", ErrDenyListFull, l.max)
	}
	l.put(c, listing{until: e.Until, forget: old.forget})
	return nil
}

// extend is Add for the penalty box, which may list many callers in a short time: it never shortens
// an entry, and searches a full list for ended entries at most once per purgeEvery. Remove calls
// forget.
func (l *DenyList) extend(e DenyEntry, forget func()) error {
	now, c := l.now(), callerOf(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	old, listed := l.listed[c]
	if listed && over(old.until, now) {
		l.remove(c) // an ended entry of the operator does not make e one
		listed = false
	}
	if listed && (old.until.IsZero() || old.until.After(e.Until)) {
		return nil
	}
	if listed {
		l.put(c, listing{e.Until, old.penalty, forget})
		return nil
	}
	if since := now.Sub(l.purged); l.full(true) && (since < 0 || since >= purgeEvery) {
		l.purge(now)
	}
	if l.full(true) {
		return fmt.Errorf("%w: %d penalties", ErrDenyListFull, l.maxPenalties)
	}
	l.put(c, listing{e.Until, true, forget})
	return nil
}

// full reports whether the list holds the maximum of added entries or of penalties. mu is held.
func (l *DenyList) full(penalty bool) bool {
	if penalty {
		return l.penalties >= l.maxPenalties
	}
	return len(l.listed)-l.penalties >= l.max
}

// Remove takes the entry with e's Key or Prefix off the list and reports whether it was there. A
// prefix is removed by its own entry only, not by one that contains it. If a penalty box has listed
// the caller, Remove also resets its denials, in the box's Strategy.
func (l *DenyList) Remove(e DenyEntry) bool {
	c := callerOf(e)
	l.mu.Lock()
	old, listed := l.listed[c]
	l.remove(c)
	l.mu.Unlock() // the Strategy may take long
	if old.forget != nil {
		old.forget()
	}
	return listed
}

// Lookup returns the entry that refuses this caller: the key's, as Config's Extractor extracts it,
// or else the one of the longest prefix that contains addr. No prefix contains the zero Addr.
func (l *DenyList) Lookup(key string, addr netip.Addr) (DenyEntry, bool) {
	return l.lookup("", []byte(key), addr)
}

func (l *DenyList) lookup(policy string, key []byte, addr netip.Addr) (DenyEntry, bool) {
	if l.Len() == 0 {
		return DenyEntry{}, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e, ok := l.listed[caller{policy: policy, key: string(key)}]; ok && !l.over(e.until) {
		return DenyEntry{Key: string(key), Policy: policy, Until: e.until, Penalty: e.penalty}, true
	}
	addr = clientaddr.Plain(addr)
	if e, ok := l.lookupAddr(addr); ok {
		return e, true
	}
	if v4, ok := fromNAT64(addr); ok {
		return l.lookupAddr(v4)
	}
	return DenyEntry{}, false
}

// Entries returns the entries, prefixes first, in order.
func (l *DenyList) Entries() []DenyEntry { return l.entries(true) }

// Added returns the entries that Add made, without penalties, in the order of Entries: the ones to
// save when the process ends.
func (l *DenyList) Added() []DenyEntry { return l.entries(false) }

func (l *DenyList) entries(penalties bool) []DenyEntry {
	now := l.now()
	l.mu.RLock()
	entries := make([]DenyEntry, 0, len(l.listed))
	for c, e := range l.listed {
		if !over(e.until, now) && (penalties || !e.penalty) {
			entries = append(entries, DenyEntry{c.key, c.policy, c.prefix, e.until, e.penalty})
		}
	}
	l.mu.RUnlock()
	slices.SortFunc(entries, func(a, b DenyEntry) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key),
			a.Prefix.Addr().Compare(b.Prefix.Addr()), a.Prefix.Bits()-b.Prefix.Bits())
	})
	return entries
}

// Len returns the number of entries, including ended ones that are not removed yet.
func (l *DenyList) Len() int { return int(l.size.Load()) }

// lookupAddr looks up addr, which is normalized. mu is held for reading.
func (l *DenyList) lookupAddr(addr netip.Addr) (DenyEntry, bool) {
	best, found := DenyEntry{}, false
	for length := range l.lengths {
		if !addr.IsValid() || length.is4 != addr.Is4() || found && length.bits < best.Prefix.Bits() {
			continue
		}
		p, _ := addr.Prefix(length.bits)
		if e, ok := l.listed[caller{prefix: p}]; ok && !l.over(e.until) {
			best, found = DenyEntry{Prefix: p, Until: e.until, Penalty: e.penalty}, true
		}
	}
	return best, found
}

// put enters c. mu is held.
func (l *DenyList) put(c caller, as listing) {
	old, listed := l.listed[c]
	if old.penalty {
		l.penalties--
	}
	if as.penalty {
		l.penalties++
	}
	if !listed && c.key == "" {
		l.lengths[lengthOf(c.prefix)]++
		l.prefixes.Add(1)
	}
	c.key = strings.Clone(c.key) // it must not retain the header that it was cut from
	l.listed[c] = as
	l.size.Store(int64(len(l.listed)))
}

// remove takes c off the list. mu is held.
func (l *DenyList) remove(c caller) {
	old, ok := l.listed[c]
	if !ok {
		return
	}
	if old.penalty {
		l.penalties--
	}
	if c.key == "" {
		n := lengthOf(c.prefix)
		l.lengths[n]--
		if l.lengths[n] == 0 {
			delete(l.lengths, n)
		}
		l.prefixes.Add(-1)
	}
	delete(l.listed, c)
	l.size.Store(int64(len(l.listed)))
}

// purge removes the entries that have ended. mu is held.
func (l *DenyList) purge(now time.Time) {
	l.purged = now
	for c, e := range l.listed {
		if over(e.until, now) {
			l.remove(c)
		}
	}
}

// over reports whether an entry has ended; it reads the clock only if the entry has an end.
func (l *DenyList) over(until time.Time) bool {
	return !until.IsZero() && over(until, l.now())
}

func over(until, now time.Time) bool { return !until.IsZero() && !until.After(now) }

func lengthOf(p netip.Prefix) prefixLength { return prefixLength{p.Addr().Is4(), p.Bits()} }
