// Package callers stores the state of strategies for each caller: a key in a Duration.
package callers

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// Table holds a value for each of a bounded number of callers. Make one with [New]. It is safe for
// concurrent use.
type Table[V any] struct {
	hash   maphash.Seed
	most   int // values a shard
	idle   func(v *V, now time.Time) bool
	ended  func(v *V, now time.Time) bool
	shards [shards]shard[V]
}

const shards = 64

type shard[V any] struct {
	mu      sync.Mutex
	entries map[caller]*entry[V] // guarded by mu, as are the values

	// removals counts the calls of Remove. What began before a removal and ends after it is out of
	// date.
	removals atomic.Uint64
}

type caller struct {
	key      string
	duration time.Duration
	lasting  bool
}

type entry[V any] struct {
	value *V
	used  time.Time
}

// New returns a table of at most so many callers, rounded up to a multiple of 64. A value makes
// room for another's if idle returns true for it; if idle is nil, each does. One for which ended
// returns true is removed when it is looked up; if ended is nil, none is. Both are called with a
// lock held.
func New[V any](most int, idle, ended func(v *V, now time.Time) bool) *Table[V] {
	t := &Table[V]{hash: maphash.MakeSeed(), most: (most-1)/shards + 1, idle: idle, ended: ended}
	for i := range t.shards {
		t.shards[i].entries = map[caller]*entry[V]{}
	}
	return t
}

func (t *Table[V]) shard(r *weir.Request) *shard[V] {
	return &t.shards[maphash.String(t.hash, r.Key)%shards]
}

// Update calls change with the value of r's caller, nil if there is none, and stores what change
// returns, nil for none. A lock is held meanwhile. It reports whether there was room to store.
func (t *Table[V]) Update(r *weir.Request, now time.Time, change func(*V) *V) bool {
	s, c := t.shard(r), caller{r.Key, r.Duration, r.Lasting}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[c]
	if e != nil && t.ended != nil && t.ended(e.value, now) {
		delete(s.entries, c)
		e = nil
	}
	if e != nil {
		e.value, e.used = change(e.value), now
		if e.value == nil {
			delete(s.entries, c)
		}
		return true
	}
	value := change(nil)
	if value == nil {
		return true
	}
	if len(s.entries) >= t.most && !t.evict(s, now) {
		return false
	}
	c.key = strings.Clone(c.key) // it may be a part of a long header
	s.entries[c] = &entry[V]{value, now}
	return true
}

// Find calls f with the value of r's caller, if there is one. A lock is held meanwhile.
func (t *Table[V]) Find(r *weir.Request, now time.Time, f func(*V)) {
	t.Update(r, now, func(v *V) *V {
		if v != nil {
			f(v)
		}
		return v
	})
}

// Lock locks the value of r's caller, and returns the lock.
func (t *Table[V]) Lock(r *weir.Request) *sync.Mutex {
	mu := &t.shard(r).mu
	mu.Lock()
	return mu
}

// evict removes the least recently used of those that are idle among a few entries. Their order is
// random: a full shard must not make each new caller pay for all others.
func (t *Table[V]) evict(s *shard[V], now time.Time) (found bool) {
	var victim caller
	var oldest time.Time
	tries := 16
	for c, e := range s.entries {
		if (t.idle == nil || t.idle(e.value, now)) && (!found || e.used.Before(oldest)) {
			victim, oldest, found = c, e.used, true
		}
		tries--
		if tries == 0 {
			break
		}
	}
	delete(s.entries, victim)
	return found
}

// Remove removes the value of r's caller.
func (t *Table[V]) Remove(r *weir.Request) {
	t.shard(r).removals.Add(1) // first: a call that does not see it stores before the removal
	t.Update(r, time.Time{}, func(*V) *V { return nil })
}

// RemovePrefix removes the values of the callers whose keys begin with prefix.
func (t *Table[V]) RemovePrefix(prefix string) {
	for i := range t.shards {
		s := &t.shards[i]
		s.removals.Add(1) // first, as in Remove
		s.mu.Lock()
		maps.DeleteFunc(s.entries, func(c caller, _ *entry[V]) bool {
			return strings.HasPrefix(c.key, prefix)
		})
		s.mu.Unlock()
	}
}

// Prefix yields a request for each caller whose key begins with prefix. No lock is held while it
// yields; callers that come or go meanwhile may be missed.
func (t *Table[V]) Prefix(prefix string) iter.Seq[*weir.Request] {
	return func(yield func(*weir.Request) bool) {
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			found := slices.Collect(maps.Keys(s.entries))
			s.mu.Unlock()
			for _, c := range found {
				r := weir.Request{Key: c.key, Duration: c.duration, Lasting: c.lasting}
				if strings.HasPrefix(c.key, prefix) && !yield(&r) {
					return
				}
			}
		}
	}
}

// Removals returns a number that changes when r's caller, or about one in 64 of the others, is
// removed.
func (t *Table[V]) Removals(r *weir.Request) uint64 { return t.shard(r).removals.Load() }

// Len returns the number of values.
func (t *Table[V]) Len() (n int) {
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].entries)
		t.shards[i].mu.Unlock()
	}
	return n
}
