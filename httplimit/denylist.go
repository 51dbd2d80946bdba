package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDenyListFull is returned by [DenyList.Add] when MaxEntries are listed, none of them over.
var ErrDenyListFull = errors.New("httplimit: deny list is full")

const (
	defaultMaxEntries = 10_000

	// purgeEvery bounds how often the penalty box has a full list searched for entries that are over: of all of them.
	purgeEvery = time.Second
)

// Entry is one line of a [DenyList]: either a Key or a Prefix.
type Entry struct {
	Key    string       // an extracted key, without the policy's name; 1 to 1024 bytes
	Prefix netip.Prefix // of the client's address; bits past its length are ignored, IPv4-mapped prefixes are IPv4
	Until  time.Time    // when it ends; the zero time: never
}

// DenyListConfig configures a [DenyList]; the zero value is the documented default.
type DenyListConfig struct {
	// MaxEntries bounds the memory. When so many are listed, and none of them is over, Add fails, and the penalty box
	// takes nobody in: what is listed is never dropped to make room. 0: 10,000. An entry takes about 150 bytes and its key.
	MaxEntries int

	// Now is the clock that ends entries. nil: time.Now.
	Now func() time.Time
}

// DenyList is a list of callers who are refused before any Strategy is asked. It is changed at run time, and is safe for
// concurrent use; several middlewares may share one. A look-up takes a read lock, one map access for the key, and one for
// each different prefix length on the list; while the list is empty it costs an atomic load.
type DenyList struct {
	max int
	now func() time.Time

	size   atomic.Int64 // of both maps; written under mu
	prefix atomic.Int64 // of prefixes; written under mu

	mu       sync.RWMutex
	keys     map[string]time.Time       // guarded by mu; values are Until
	prefixes map[netip.Prefix]time.Time // guarded by mu; masked
	lengths  map[prefixLength]int       // guarded by mu; how many prefixes there are of each length
	purged   time.Time                  // guarded by mu; when a full list was last searched
}

// prefixLength is a length of prefixes of one family: a /32 of IPv4 holds no IPv6 address.
type prefixLength struct {
	is4  bool
	bits int
}

// NewDenyList returns an empty list. It panics if MaxEntries is negative.
func NewDenyList(cfg DenyListConfig) *DenyList {
	if cfg.MaxEntries < 0 {
		panic(fmt.Sprintf("httplimit: MaxEntries is %d", cfg.MaxEntries))
	}
	l := &DenyList{
		max:      cfg.MaxEntries,
		now:      cfg.Now,
		keys:     make(map[string]time.Time),
		prefixes: make(map[netip.Prefix]time.Time),
		lengths:  make(map[prefixLength]int),
	}
	if l.max == 0 {
		l.max = defaultMaxEntries
	}
	if l.now == nil {
		l.now = time.Now
	}
	return l
}

// Add lists e, or gives the entry that is there already its new end. An e that is over already is not listed. It fails
// with [ErrDenyListFull], or if e has not exactly one of Key and Prefix.
func (l *DenyList) Add(e Entry) error {
	if (e.Key == "") == !e.Prefix.IsValid() {
		return errors.New("httplimit: a deny list entry is either a key or a prefix")
	}
	if len(e.Key) > maxKeyLen {
		return tooLong("the deny list entry", len(e.Key))
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if over(e.Until, now) {
		l.remove(e)
		return nil
	}
	if !l.has(e) && l.full() {
		l.purge(now)
	}
	return l.enter(e)
}

// extend is Add for the penalty box, which may have to list many in a short time: it never lets a caller off earlier than
// an entry that is there already, and searches a full list for what is over no more than once per purgeEvery.
func (l *DenyList) extend(key string, until time.Time) error {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	old, listed := l.keys[key]
	if listed && (old.IsZero() || old.After(until)) {
		return nil
	}
	if since := now.Sub(l.purged); !listed && l.full() && (since < 0 || since >= purgeEvery) {
		l.purge(now)
	}
	return l.enter(Entry{Key: key, Until: until})
}

// enter puts e on the list if there is room. mu is held.
func (l *DenyList) enter(e Entry) error {
	if !l.has(e) && l.full() {
		return fmt.Errorf("%w: %d entries", ErrDenyListFull, l.max)
	}
	l.put(e)
	return nil
}

// full reports whether there is room for no other entry. mu is held.
func (l *DenyList) full() bool { return len(l.keys)+len(l.prefixes) >= l.max }

// Remove takes the entry with e's Key or Prefix off the list and reports whether it was there. A prefix is removed by its
// own entry only, not by one that contains it.
func (l *DenyList) Remove(e Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(e)
}

// Lookup returns the entry that refuses this caller: that of his key, or else that of the longest prefix that addr is in.
// The zero Addr is in none.
func (l *DenyList) Lookup(key string, addr netip.Addr) (Entry, bool) {
	return l.lookup([]byte(key), addr)
}

func (l *DenyList) lookup(key []byte, addr netip.Addr) (Entry, bool) {
	if l.Len() == 0 {
		return Entry{}, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if until, ok := l.keys[string(key)]; ok && !l.over(until) {
		return Entry{Key: string(key), Until: until}, true
	}
	return l.lookupAddr(addr)
}

// Entries returns what is listed, prefixes first, in order.
func (l *DenyList) Entries() []Entry {
	now := l.now()
	l.mu.RLock()
	entries := make([]Entry, 0, len(l.keys)+len(l.prefixes))
	for p, until := range l.prefixes {
		entries = append(entries, Entry{Prefix: p, Until: until})
	}
	for k, until := range l.keys {
		entries = append(entries, Entry{Key: k, Until: until})
	}
	l.mu.RUnlock()
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return over(e.Until, now) })
	slices.SortFunc(entries, func(a, b Entry) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits())
	})
	return entries
}

// Len returns how many entries are held; some may be over and not yet removed.
func (l *DenyList) Len() int { return int(l.size.Load()) }

// lookupAddr looks addr up. mu is held for reading.
func (l *DenyList) lookupAddr(addr netip.Addr) (Entry, bool) {
	addr = normalize(addr)
	best, found := Entry{}, false
	for length := range l.lengths {
		if !addr.IsValid() || length.is4 != addr.Is4() || found && length.bits < best.Prefix.Bits() {
			continue
		}
		p, _ := addr.Prefix(length.bits)
		if until, ok := l.prefixes[p]; ok && !l.over(until) {
			best, found = Entry{Prefix: p, Until: until}, true
		}
	}
	return best, found
}

// has reports whether an entry of e's Key or Prefix is held. mu is held.
func (l *DenyList) has(e Entry) (ok bool) {
	if e.Key != "" {
		_, ok = l.keys[e.Key]
	} else {
		_, ok = l.prefixes[unmapPrefix(e.Prefix)]
	}
	return ok
}

// put enters e. mu is held.
func (l *DenyList) put(e Entry) {
	if e.Key != "" {
		l.keys[strings.Clone(e.Key)] = e.Until // a key cut from a header must not pin the header
	} else {
		p := unmapPrefix(e.Prefix)
		if _, ok := l.prefixes[p]; !ok {
			l.lengths[lengthOf(p)]++
		}
		l.prefixes[p] = e.Until
	}
	l.resized()
}

// remove is Remove. mu is held.
func (l *DenyList) remove(e Entry) bool {
	if !l.has(e) {
		return false
	}
	if e.Key != "" {
		delete(l.keys, e.Key)
	} else {
		p := unmapPrefix(e.Prefix)
		delete(l.prefixes, p)
		if l.lengths[lengthOf(p)]--; l.lengths[lengthOf(p)] == 0 {
			delete(l.lengths, lengthOf(p))
		}
	}
	l.resized()
	return true
}

// resized tells the readers that hold no lock. mu is held.
func (l *DenyList) resized() {
	l.size.Store(int64(len(l.keys) + len(l.prefixes)))
	l.prefix.Store(int64(len(l.prefixes)))
}

// purge removes what is over. mu is held.
func (l *DenyList) purge(now time.Time) {
	l.purged = now
	for k, until := range l.keys {
		if over(until, now) {
			l.remove(Entry{Key: k})
		}
	}
	for p, until := range l.prefixes {
		if over(until, now) {
			l.remove(Entry{Prefix: p})
		}
	}
}

// over reports whether an entry has ended; the clock is not read for one that never does.
func (l *DenyList) over(until time.Time) bool {
	return !until.IsZero() && over(until, l.now())
}

func over(until, now time.Time) bool { return !until.IsZero() && !until.After(now) }

func lengthOf(p netip.Prefix) prefixLength { return prefixLength{p.Addr().Is4(), p.Bits()} }

// listed returns the entry that refuses the caller, if there is one. It fails if the list holds prefixes and the address
// that they are compared with cannot be found.
func (m *middleware) listed(key []byte, r *http.Request) (e Entry, ok bool, err error) {
	var addr netip.Addr
	if m.DenyList.prefix.Load() > 0 {
		if addr, err = m.ClientIP.Addr(r); err != nil {
			return Entry{}, false, err
		}
	}
	e, ok = m.DenyList.lookup(key, addr)
	return e, ok, nil
}

// endListed ends a request whose caller is listed: for good, and coming again is of no use, or for a while.
func (m *middleware) endListed(c *call, e Entry) {
	c.until = e.Until
	if e.Until.IsZero() {
		c.end(Listed, http.StatusForbidden, nil)
		return
	}
	c.end(Listed, m.DeniedStatus, nil)
}
