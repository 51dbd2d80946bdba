// Package states holds the states of callers where they have no fixed size, each under a lock of
// its own.
package states

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/tally"
)

// State is what an algorithm keeps of one caller: a log, a queue, the counts of tiers. It is reused
// from period to period.
type State interface {
	// Expires returns the instant from which the state counts nothing, if it is not used again;
	// algorithm.Never if it counts nothing now.
	Expires(scaleMs int64) int64

	// Bytes returns how many bytes the state holds beside itself, and Growth how many more it may hold
	// when a request with meta is admitted.
	Bytes() int64
	Growth(meta string) int64
}

// Beside is a State that is kept beside a slot, which takes the room of the bucket. It leaves the
// table when it counts nothing.
type Beside interface {
	// Attach has the state decide on its slot, or only look at that if it is not kept. It reports
	// false if there is no slot to decide on. The state is locked, as it is in Detach.
	Attach(kept bool) bool

	// Make makes the slot.
	Make() error

	// Detach has others decide on the slot again. It reports whether nothing is held in it.
	Detach() (idle bool)
}

// Key names a state.
type Key struct {
	ID     string
	Scale  int64  // ms
	Plan   string // tells apart what else has different states
	Series int64  // the number of the series; 0: none
}

// Limits are what the tables of a limiter share.
type Limits struct {
	Clock *clock.Clock
	Room  *room.Room

	// Full and FullBytes remove expired states of any table at a full one. They report whether there
	// is room again.
	Full, FullBytes func(now int64) bool
}

// Table is a sharded concurrent map from keys to states.
//
// A sweep marks an entry removed, under its lock, before it removes it from the map; a caller who
// finds a removed entry looks again. So no count is lost to a sweep.
type Table[S State] struct {
	ids.Hasher
	*Limits
	empty  func(Key) S
	beside bool
	made   sync.Once
	shards []shard[S]    // made with the first lock of a key
	denied atomic.Uint64 // of callers without an entry
	kept   atomic.Bool   // shards was made
}

type shard[S State] struct {
	entries  atomic.Pointer[xsync.MapOf[Key, *Entry[S]]] // made with the first entry
	expiry   expiry
	sweeping sync.Mutex // held by the sweep that raises expiry

	allowed, denied atomic.Uint64
}

// Entry is a state that is kept.
type Entry[S State] struct {
	key     Key       // read-only
	shard   *shard[S] // read-only
	state   S         // what it points to is guarded by mu, as all below
	mu      sync.Mutex
	latest  int64 // the instant of the last use; algorithm.Never: it was not used yet
	expires int64 // when state expires, as of the last use
	bytes   int64 // reserved for state; below 0: the entry leaves the map
}

const (
	// entries of a full shard, which are swept in a fraction of a millisecond
	shardSize = 2048
	maxShards = 1 << 16
)

// Init makes an empty table, whose states empty makes.
func (t *Table[S]) Init(l *Limits, empty func(Key) S) {
	t.Limits, t.empty, t.Hasher = l, empty, ids.NewHasher()
	_, t.beside = any(*new(S)).(Beside)
}

// all returns the shards, or none before the first lock.
func (t *Table[S]) all() []shard[S] {
	if !t.kept.Load() {
		return nil
	}
	return t.shards
}

func (t *Table[S]) shard(k Key) *shard[S] {
	t.made.Do(func() {
		n := 1
		for int64(n)*shardSize < t.Room.Max && n < maxShards {
			n *= 2
		}
		t.shards = make([]shard[S], n)
		for i := range t.shards {
			t.shards[i].expiry.reset()
		}
		t.kept.Store(true)
	})
	return &t.shards[t.hash(k)>>40&uint64(len(t.shards)-1)]
}

func (t *Table[S]) hash(k Key) uint64 {
	p := slots.PeriodOf(0, k.Scale, k.Series<<8|int64(len(k.Plan))&0xff)
	return t.Hash(k.ID) ^ p.Salt&t.Mask
}

// Lock returns the state of a key, locked, and reads the clock. If there is none it makes one if
// create is set, and otherwise returns an empty one. Only making one fails, with room.ErrFull.
//
// Now is asOf, if that is before the reading, and not before the last use. A state that was not
// used yet may be the second of its key, and is decided on as of the reading: what the first one
// counted does not count from a reading on at which it was removed.
func (t *Table[S]) Lock(k Key, create bool, asOf int64) (Locked[S], error) {
	for {
		e, now, err := t.lock(k, create)
		if err != nil {
			return Locked[S]{}, err
		}
		h := Locked[S]{Now: now, Entry: e, table: t}
		if e == nil {
			h.State = t.empty(k)
		} else {
			if e.latest != algorithm.Never {
				now = min(now, asOf)
			}
			h.State, h.Now = e.state, max(now, e.latest)
		}
		if !t.beside {
			return h, nil
		}
		of := any(h.State).(Beside)
		if of.Attach(e != nil) {
			return h, nil
		}
		h.Remove() // to make a slot may reclaim, which takes the locks of states
		if create {
			err = of.Make()
		}
		if err != nil {
			return Locked[S]{}, err
		}
	}
}

// lock returns the entry of a key, locked, or nil if there is none and create is not set. It reads
// the clock after it found the entry, which stays in the map while it is locked and not removed. So
// every earlier entry of the key was removed at an earlier reading.
func (t *Table[S]) lock(k Key, create bool) (e *Entry[S], now int64, err error) {
	sh := t.shard(k)
	for {
		e = sh.find(k)
		if e == nil && !create {
			now = t.Clock.Read()
			if sh.find(k) == nil { // absent before and after the reading
				return nil, now, nil
			}
			continue
		}
		if e == nil {
			if e, err = t.insert(sh, k); err != nil {
				return nil, 0, err
			}
		}
		now = t.Clock.Read()
		e.mu.Lock()
		if !e.removed() {
			return e, now, nil
		}
		e.mu.Unlock()
		t.delete(e)
	}
}

func (sh *shard[S]) find(k Key) *Entry[S] {
	if m := sh.entries.Load(); m != nil {
		e, _ := m.Load(k)
		return e
	}
	return nil
}

// insert returns the entry of a key, which it makes if there is none. It takes room first, so that
// there are never more buckets than there is room for.
func (t *Table[S]) insert(sh *shard[S], k Key) (*Entry[S], error) {
	for !t.beside && !t.Room.Take() {
		if !t.Full(t.Clock.Read()) {
			return nil, room.ErrFull
		}
	}
	k.ID = strings.Clone(k.ID) // six bytes cut from a header of 8 KiB must not pin the header
	if sh.entries.Load() == nil {
		m := xsync.NewMapOfWithHasher[Key, *Entry[S]](func(k Key, _ uint64) uint64 { return t.hash(k) })
		sh.entries.CompareAndSwap(nil, m)
	}
	made := &Entry[S]{key: k, shard: sh, state: t.empty(k),
		latest: algorithm.Never, expires: algorithm.Never}
	e, loaded := sh.entries.Load().LoadOrStore(k, made)
	if loaded && !t.beside {
		t.Room.Give()
	}
	return e, nil
}

// delete takes an entry that is marked removed out of the map.
func (t *Table[S]) delete(e *Entry[S]) {
	e.shard.entries.Load().Compute(e.key, func(in *Entry[S], _ bool) (*Entry[S], bool) {
		if in == e && !t.beside {
			t.Room.Give()
		}
		return in, in == nil || in == e
	})
}

// State returns the state. What it points to is guarded by the lock of the entry.
func (e *Entry[S]) State() S { return e.state }

// end returns the instant at which an entry expires. Its lock is held.
func (e *Entry[S]) end() int64 { return max(e.expires, e.latest) }

// removed reports whether the entry leaves the map. Its lock is held.
func (e *Entry[S]) removed() bool { return e.bytes < 0 }

// mark marks an entry removed, before it is taken out of the map. Its lock is held. It reports
// whether the caller has no bucket then.
func (t *Table[S]) mark(e *Entry[S]) bool {
	t.Room.Bytes.Add(-e.bytes)
	e.bytes = -1
	of, beside := any(e.state).(Beside)
	return !beside || of.Detach()
}

// Keys yields the keys of the states until it reports false. Those that come or go meanwhile may be
// missed.
func (t *Table[S]) Keys(yield func(Key) bool) {
	t.entries(func(e *Entry[S]) bool { return yield(e.key) })
}

// entries is Keys, for entries that are not locked.
func (t *Table[S]) entries(yield func(*Entry[S]) bool) {
	for i, more := 0, true; more && i < len(t.all()); i++ {
		if m := t.shards[i].entries.Load(); m != nil {
			m.Range(func(_ Key, e *Entry[S]) bool {
				more = yield(e)
				return more
			})
		}
	}
}

// States calls f for the states that have not expired at now, each locked, and then between, until
// that reports false.
func (t *Table[S]) States(now int64, f func(Key, S), between func() bool) {
	for e := range t.entries {
		e.mu.Lock()
		if !e.removed() && e.expires > now {
			f(e.key, e.state)
		}
		e.mu.Unlock()
		if !between() {
			return
		}
	}
}

// SumUp adds how many hits were admitted and denied.
func (t *Table[S]) SumUp(sum *tally.Sums) {
	sum.Denied += t.denied.Load()
	for i := range t.all() {
		sum.Allowed += t.shards[i].allowed.Load()
		sum.Denied += t.shards[i].denied.Load()
	}
}

// Sweep removes the states that expired timeout ago at now, and returns their number.
func (t *Table[S]) Sweep(now, timeout int64) (removed int) {
	for i := range t.all() {
		n, _ := t.sweep(&t.shards[i], now, timeout)
		removed += n
	}
	return removed
}

// Reclaim removes some states that have expired at now. It returns 0 if it found none, or has used
// up budget: a number of states to look at, which it lowers.
func (t *Table[S]) Reclaim(now int64, budget *int) int {
	for i := range t.all() {
		removed, seen := t.sweep(&t.shards[i], now, 0)
		*budget -= seen
		if removed > 0 || *budget <= 0 {
			return removed
		}
	}
	return 0
}

// Soonest returns an instant at or before the one at which the first state expires.
func (t *Table[S]) Soonest() int64 {
	soonest := algorithm.End
	for i := range t.all() {
		soonest = min(soonest, t.shards[i].expiry.earliest.Load())
	}
	return soonest
}

// HasBytes reports that states hold bytes of the room.
func (t *Table[S]) HasBytes() bool { return true }

// sweep removes the entries of a shard that expired timeout ago. It returns how many entries it
// saw: none if nothing can have expired.
func (t *Table[S]) sweep(sh *shard[S], now, timeout int64) (removed, seen int) {
	if sh.expiry.earliest.Load() > now {
		return 0, 0
	}
	sh.sweeping.Lock()
	defer sh.sweeping.Unlock()
	if sh.expiry.earliest.Load() > now { // swept while we waited
		return 0, 0
	}
	sh.expiry.begin()
	earliest := algorithm.End
	sh.entries.Load().Range(func(_ Key, e *Entry[S]) bool {
		seen++
		e.mu.Lock()
		end := e.end()
		// A call has just made this entry and will lock it: a reclaim leaves it, a sweep need not.
		beingMade := end == algorithm.Never && timeout == 0
		over := now >= arith.Add(end, timeout) && !e.removed() && !beingMade
		if over && t.mark(e) {
			removed++
		}
		e.mu.Unlock()
		if over {
			t.delete(e)
		} else {
			earliest = min(earliest, end)
		}
		return true
	})
	sh.expiry.finish(earliest)
	return removed, seen
}

// expiry is a lower bound, kept without a mutex, of the instants at which states expire. A sweep of
// them raises it again: it calls begin, looks at every state, and calls finish with the earliest it
// saw. States that change meanwhile are in noted. note lowers noted, then earliest; finish stores
// earliest, then reads noted: so each note is seen by finish, or lowers what finish stored.
type expiry struct{ earliest, noted atomic.Int64 }

func (e *expiry) reset() {
	e.earliest.Store(algorithm.End)
	e.noted.Store(algorithm.End)
}

func (e *expiry) note(end int64) {
	storeMin(&e.noted, end)
	storeMin(&e.earliest, end)
}

func (e *expiry) begin() { e.noted.Store(algorithm.End) }

func (e *expiry) finish(earliest int64) {
	e.earliest.Store(earliest)
	storeMin(&e.earliest, e.noted.Load())
}

func storeMin(a *atomic.Int64, to int64) {
	for {
		if at := a.Load(); at <= to || a.CompareAndSwap(at, to) {
			return
		}
	}
}
