package weir

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/room"
	"github.com/weirgo/weir/internal/slots"
)

// state is what an algorithm keeps of one caller where that has no fixed size: a log, a queue, the
// counts of tiers. It is reused from period to period, under a lock of its own.
type state interface {
	// Expires returns the instant from which the state counts nothing, if it is not used again;
	// noInstant if it counts nothing now.
	Expires(scaleMs int64) int64

	// Bytes returns how many bytes the state holds beside itself, and Growth how many more it may hold
	// when a request with meta is admitted.
	Bytes() int64
	Growth(meta string) int64
}

type stateKey struct {
	id    string
	scale int64  // ms
	plan  string // of Tiers: their durations; of a List: listPlan
	// the number of the series; 0: none
	series int64
}

// states is a sharded concurrent map from keys to states. It implements sweeper.
//
// A sweep marks an entry removed, under its lock, before it removes it from the map; a caller who
// finds a removed entry looks again. So no count is lost to a sweep.
type states struct {
	slots.Hasher
	l      *Limiter
	record byte                  // of the states in a snapshot
	empty  func() state          // makes the states, which are of one type
	write  func(*encoder, state) // saves one of them
	shards []stateShard
	room   *room.Room    // of entries
	denied atomic.Uint64 // of callers without an entry
}

type stateShard struct {
	entries  atomic.Pointer[xsync.MapOf[stateKey, *entry]] // made with the first entry
	expiry   expiry
	sweeping sync.Mutex // held by the sweep that raises expiry

	allowed, denied atomic.Uint64
}

type entry struct {
	key     stateKey    // read-only
	shard   *stateShard // read-only
	state   state       // what it points to is guarded by mu, as all below
	mu      sync.Mutex
	removed bool  // set before the entry leaves the map
	latest  int64 // the instant of the last use
	bytes   int64 // reserved for state
}

// entries of a full shard, which are swept in a fraction of a millisecond
const stateShardSize = 2048

// lazyStates returns a function that makes the table when it is first called.
func lazyStates(
	l *Limiter, record byte, empty func() state, write func(*encoder, state),
) func() *states {
	return sync.OnceValue(func() *states {
		n := 1
		for int64(n)*stateShardSize < l.room.Max && n < 1<<16 {
			n *= 2
		}
		t := &states{Hasher: slots.NewHasher(), l: l, record: record, empty: empty, write: write,
			shards: make([]stateShard, n)}
		if t.room = l.room; record == flightRecord { // their slots take the room
			t.room = room.New(maxInstant, l.janitor.taken)
		}
		for i := range t.shards {
			t.shards[i].expiry.reset()
		}
		l.janitor.add(t)
		return t
	})
}

func (t *states) hashKey(k stateKey) uint64 {
	return t.Hash(k.id) ^ slots.PeriodOf(fixedKind, k.scale, k.series<<8|int64(len(k.plan))&0xff).Salt&t.Mask
}

func (t *states) shard(k stateKey) *stateShard {
	return &t.shards[t.hashKey(k)>>40&uint64(len(t.shards)-1)]
}

// use is what was done with a state.
type use int

const (
	seen use = iota // nothing was changed
	changed
	denied
	admitted
)

// handle says where a locked state is kept.
type handle struct {
	now   int64  // the clock's reading before the lock was taken, or the last use if that is later
	entry *entry // nil: there is none, and the state is not to be changed
}

// lock returns the state of a key, locked. If there is none it makes one if create is set, and
// otherwise returns an empty one. Only making one fails, with ErrFull.
func (t *states) lock(k stateKey, create bool) (handle, state, error) {
	e, now, err := t.lockKey(k, create)
	switch {
	case err != nil:
		return handle{}, nil, err
	case t.record == flightRecord:
		return t.lockFlight(k, create, e, now)
	case e == nil:
		return handle{now: now}, t.empty(), nil
	}
	return handle{max(now, e.latest), e}, e.state, nil
}

// lockFlight attaches the flight of e, or an empty one if e is nil, to its slot, which it makes if
// there is none and create is set.
func (t *states) lockFlight(
	k stateKey, create bool, e *entry, now int64,
) (h handle, of state, err error) {
	if e == nil {
		h, of = handle{now: now}, t.empty()
	} else {
		h, of = handle{max(now, e.latest), e}, e.state
	}
	if of.(*flight).attach(t.l, k, e != nil) {
		return h, of, nil
	}
	t.remove(h) // to make a slot may reclaim, which takes the locks of flights
	if create {
		err = t.l.makePlaces(k)
	}
	if err != nil {
		return handle{}, nil, err
	}
	return t.lock(k, create)
}

// lockKey returns the entry of a key, locked, or nil if there is none and create is not set. It
// reads the clock after it found the entry, which stays in the map while it is locked and not
// removed. So every earlier entry of the key was removed at an earlier reading.
func (t *states) lockKey(k stateKey, create bool) (e *entry, now int64, err error) {
	sh := t.shard(k)
	for {
		e = sh.find(k)
		if e == nil && !create {
			now = t.l.clock.Read()
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
		now = t.l.clock.Read()
		e.mu.Lock()
		if !e.removed {
			return e, now, nil
		}
		e.mu.Unlock()
		t.delete(e)
	}
}

func (sh *stateShard) find(k stateKey) *entry {
	if m := sh.entries.Load(); m != nil {
		e, _ := m.Load(k)
		return e
	}
	return nil
}

// insert returns the entry of a key, which it makes if there is none. It takes room first,
// so that there are never more buckets than MaxBuckets.
func (t *states) insert(sh *stateShard, k stateKey) (*entry, error) {
	for !t.room.Take() {
		if !t.l.janitor.reclaim(t.l.clock.Read()) {
			return nil, ErrFull
		}
	}
	k.id = strings.Clone(k.id) // six bytes cut from a header of 8 KiB must not pin the header
	if sh.entries.Load() == nil {
		hash := func(k stateKey, _ uint64) uint64 { return t.hashKey(k) }
		m := xsync.NewMapOfWithHasher[stateKey, *entry](hash)
		sh.entries.CompareAndSwap(nil, m)
	}
	made := &entry{key: k, shard: sh, state: t.empty(), latest: math.MinInt64}
	e, loaded := sh.entries.Load().LoadOrStore(k, made)
	if loaded {
		t.room.Give()
	}
	return e, nil
}

// delete takes an entry that is marked removed out of the map.
func (t *states) delete(e *entry) {
	e.shard.entries.Load().Compute(e.key, func(in *entry, _ bool) (*entry, bool) {
		if in == e {
			t.room.Give()
		}
		return in, in == nil || in == e
	})
}

// reserve makes room for what an admission adds to a state. It reports false if there is none.
func (t *states) reserve(h handle, meta string) bool {
	n := h.entry.state.Growth(meta)
	if n > 0 && !t.l.room.Grow(n) {
		return false
	}
	h.entry.bytes += n
	return true
}

// unlock ends the use of a state.
func (t *states) unlock(h handle, u use) {
	e := h.entry
	switch {
	case u == admitted:
		e.shard.allowed.Add(1)
	case u == denied && e != nil:
		e.shard.denied.Add(1)
	case u == denied:
		t.denied.Add(1)
	}
	if e == nil {
		return
	}
	if u != seen {
		e.latest = h.now
	}
	if size := h.entry.state.Bytes(); size != e.bytes {
		t.l.room.Bytes.Add(size - e.bytes)
		e.bytes = size
	}
	if t.record == flightRecord && e.state.Expires(e.key.scale) == noInstant {
		t.remove(h) // its slot is enough
		return
	}
	e.shard.expiry.note(t.end(e))
	e.mu.Unlock()
}

// end returns the instant at which an entry expires. Its lock is held.
func (t *states) end(e *entry) int64 { return max(e.state.Expires(e.key.scale), e.latest) }

// remove removes a state, and unlocks it.
func (t *states) remove(h handle) {
	t.mark(h.entry)
	h.entry.mu.Unlock()
	t.delete(h.entry)
}

// mark marks an entry removed, before it is taken out of the map. Its lock is held. It reports
// whether the caller has no bucket then.
func (t *states) mark(e *entry) bool {
	e.removed = true
	t.l.room.Bytes.Add(-e.bytes)
	e.bytes = 0
	f, ok := e.state.(*flight)
	return !ok || f.detach(t.l)
}

func (t *states) sweep(now, timeout int64) (removed int) {
	for i := range t.shards {
		t.l.clock.Advance()
		n, _ := t.sweepShard(&t.shards[i], now, timeout)
		removed += n
	}
	return removed
}

// makeRoom unlocks a state for which reserve found no room, and removes expired states of others. A
// state that counts nothing is removed too. It reports false if that freed nothing.
func (t *states) makeRoom(h handle) bool {
	before := t.l.room.Bytes.Load()
	if h.entry.state.Expires(h.entry.key.scale) == noInstant {
		t.remove(h)
	} else {
		t.unlock(h, changed)
	}
	return t.l.room.Bytes.Load() < before || t.l.janitor.reclaimBytes(h.now)
}

func (t *states) reclaimSome(now int64, budget *int) int {
	for i := range t.shards {
		removed, seen := t.sweepShard(&t.shards[i], now, 0)
		if *budget -= seen; removed > 0 || *budget <= 0 {
			return removed
		}
	}
	return 0
}

func (t *states) soonest() int64 {
	soonest := maxInstant
	for i := range t.shards {
		soonest = min(soonest, t.shards[i].expiry.earliest.Load())
	}
	return soonest
}

// sweepShard removes the entries of a shard that expired timeout ago. It returns how many entries
// it saw: none if nothing can have expired.
func (t *states) sweepShard(sh *stateShard, now, timeout int64) (removed, seen int) {
	if sh.expiry.earliest.Load() > now {
		return 0, 0
	}
	sh.sweeping.Lock()
	defer sh.sweeping.Unlock()
	if sh.expiry.earliest.Load() > now { // swept while we waited
		return 0, 0
	}
	sh.expiry.begin()
	earliest := maxInstant
	sh.entries.Load().Range(func(_ stateKey, e *entry) bool {
		seen++
		e.mu.Lock()
		end := t.end(e)
		// A call has just made this entry and will lock it: a reclaim leaves it, a sweep need not.
		beingMade := end == math.MinInt64 && timeout == 0
		over := now >= arith.Add(end, timeout) && !e.removed && !beingMade
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

func (t *states) stats(s *Stats) {
	s.Denied += t.denied.Load()
	for i := range t.shards {
		s.Allowed += t.shards[i].allowed.Load()
		s.Denied += t.shards[i].denied.Load()
	}
}

// expiry is a lower bound, kept without a mutex, of the instants at which states expire. A sweep of
// them raises it again: it calls begin, looks at every state, and calls finish with the earliest it
// saw. States that change meanwhile are in noted. note lowers noted, then earliest; finish stores
// earliest, then reads noted: so each note is seen by finish, or lowers what finish stored.
type expiry struct{ earliest, noted atomic.Int64 }

func (e *expiry) reset() {
	e.earliest.Store(maxInstant)
	e.noted.Store(maxInstant)
}

func (e *expiry) note(end int64) {
	storeMin(&e.noted, end)
	storeMin(&e.earliest, end)
}

func (e *expiry) begin() { e.noted.Store(math.MaxInt64) }

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
