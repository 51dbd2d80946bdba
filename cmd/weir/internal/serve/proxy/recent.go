package proxy

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// recent holds the callers of the last minute, so that an entry of the deny list can be weighed
// before it stops them. Of many callers it holds a sample.
type recent struct {
	seed maphash.Seed

	mu    sync.RWMutex
	spans [3]span // guarded by mu; one after the other, the newest first
}

// span holds the callers of spanLength: those of which the last level bits of the key's hash are 0,
// one in 2^level. The choice of callers does not depend on how many requests they send.
type span struct {
	from  time.Time
	level int
	addrs map[string]netip.Addr // by key, the last address; invalid if it is unknown
}

const (
	spanLength = 30 * time.Second // two whole spans are always held
	maxSampled = 4096             // callers of a span
)

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

// see notes a request of a caller.
func (r *recent) see(key string, addr netip.Addr, now time.Time) {
	if r.seen(key, addr, now) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	s := &r.spans[0]
	if !r.sampled(key, s.level) {
		return
	}
	if _, ok := s.addrs[key]; !ok {
		key = strings.Clone(key) // it must not retain the header that it was cut from
	}
	s.addrs[key] = addr
	for len(s.addrs) > maxSampled {
		s.level++
		maps.DeleteFunc(s.addrs, func(key string, _ netip.Addr) bool { return !r.sampled(key, s.level) })
	}
}

// seen reports whether see has nothing to note, as of most requests, which so wait for no other.
func (r *recent) seen(key string, addr netip.Addr, now time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := &r.spans[0]
	if now.Sub(s.from) >= spanLength {
		return false
	}
	last, ok := s.addrs[key]
	return ok && last == addr || !ok && !r.sampled(key, s.level)
}

// callers returns callers with their last addresses, each of which stands for so many.
func (r *recent) callers(now time.Time) (callers map[string]netip.Addr, each int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	level := max(r.spans[0].level, r.spans[1].level, r.spans[2].level)
	callers = make(map[string]netip.Addr)
	for i := len(r.spans) - 1; i >= 0; i-- { // the newest last
		for key, addr := range r.spans[i].addrs {
			if r.sampled(key, level) {
				callers[key] = addr
			}
		}
	}
	return callers, 1 << level
}

// count returns the number of callers and how many of them stops reports true for. Both are
// estimates if there are more than maxSampled.
func (r *recent) count(
	now time.Time, stops func(key string, addr netip.Addr) bool,
) (stopped, all int) {
	callers, each := r.callers(now)
	for key, addr := range callers {
		if stops(key, addr) {
			stopped += each
		}
	}
	return stopped, len(callers) * each
}

// addr returns the last address of a caller; the zero Addr if it is unknown.
func (r *recent) addr(key string) netip.Addr {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.spans {
		if addr, ok := s.addrs[key]; ok {
			return addr
		}
	}
	return netip.Addr{}
}

// turn begins the span that now is in. mu is held.
func (r *recent) turn(now time.Time) {
	for i := 0; i < len(r.spans) && now.Sub(r.spans[0].from) >= spanLength; i++ {
		from := r.spans[0].from.Add(spanLength)
		if i == len(r.spans)-1 {
			from = now // nobody came for longer than all spans
		}
		copy(r.spans[1:], r.spans[:])
		r.spans[0] = span{from: from, addrs: make(map[string]netip.Addr)}
	}
}

func (r *recent) sampled(key string, level int) bool {
	return maphash.String(r.seed, key)&(1<<level-1) == 0
}
