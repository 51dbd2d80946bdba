package weir

import (
	"hash/maphash"
	"iter"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v3"
)

// lifecycle is what a table must know of the state it keeps.
type lifecycle interface {
	// over returns the earliest instant from which no strategy looks at the state any more, if it is not used again.
	over(of period) int64

	// bury reports whether the state may be forgotten at now: it is over, and grace has passed since it was last
	// modified. A state that is used again after it was over is first marked dead here, so that whoever still holds it
	// looks again.
	bury(of period, over, now, grace int64) bool

	// settled returns the state's part of Stats, which its entry has kept until now.
	settled() (allowed, denied uint64)
}

// table is a sharded concurrent map from <id, period> to a state. It has no lock that a decision waits for: a known
// entry is found with atomic loads alone, and inserting or removing one locks a single bucket of xsync's map.
//
// The map is keyed by a 64-bit digest, and its values are chains of entries compared in full: two ids never share a
// state, whatever the hash does. Digests are seeded per process, so nobody outside can aim at one shard. All entries
// of one id live in one shard. Shards keep a growing map's resize small: unsharded, it stalls one decision for
// hundreds of milliseconds at a million entries.
type table[S any, P interface {
	*S
	lifecycle
}] struct {
	hasher
	shards []shard[S]
	shift  uint // a hash shifted right by it is a shard's index
	room   *room
	recent atomic.Pointer[recent[S]]
	fresh  func(*S) // prepares a new state; nil for the zero value
}

type shard[S any] struct {
	entries atomic.Pointer[xsync.MapOf[uint64, *entry[S]]] // made by the first insertion

	// earliest is at most the instant at which the first of the entries is over. An insertion lowers arrived and then
	// earliest; a sweep raises earliest to what it saw and what arrived meanwhile.
	earliest, arrived atomic.Int64
	sweeping          sync.Mutex // one sweep at a time raises earliest

	// barren is when a reclaim last found nothing. Where state is reused in place a busy caller's moves on and leaves
	// earliest behind; without it, each new id at a full table would have the shard scanned.
	barren atomic.Int64

	allowed, denied atomic.Uint64 // for Stats
}

// entry is an element of a table. The key is read-only once the entry is in the table.
type entry[S any] struct {
	name
	state S
	more  *more[S] // nil for a short id that is alone in its chain; set before the entry is in the table
}

// more is what not every entry has.
type more[S any] struct {
	next atomic.Pointer[entry[S]] // the chain of one digest; changed under the lock of its map bucket
	near [nearby]byte             // what follows name's part of the id,
	far  *string                  // or this, if near has no room for it
}

// nearby is enough for the name of a policy and an address.
const nearby = 16

// newEntry copies id: six bytes cut from a header of 8 KiB must not pin the header.
func newEntry[S any](id string, of period) *entry[S] {
	name := nameOf(id, of)
	if len(id) <= inline {
		return &entry[S]{name: name}
	}
	e := new(struct { // one allocation, side by side
		entry entry[S]
		more  more[S]
	})
	e.entry = entry[S]{name: name, more: &e.more}
	if copy(e.more.near[:], id[inline:]) < len(id)-inline {
		far := strings.Clone(id[inline:])
		e.more.far = &far
	}
	return &e.entry
}

func (e *entry[S]) is(id string, of period) bool {
	begin := min(len(id), inline)
	return e.low == of.low && e.high == of.named(id) && string(e.text[:begin]) == id[:begin] &&
		(begin == len(id) || e.more.is(id[begin:]))
}

func (m *more[S]) is(rest string) bool {
	if len(rest) > nearby {
		return *m.far == rest
	}
	return string(m.near[:len(rest)]) == rest
}

func (e *entry[S]) id() string {
	switch n := e.size(); {
	case n <= inline:
		return string(e.text[:n])
	case n <= inline+nearby:
		return string(e.text[:]) + string(e.more.near[:n-inline])
	}
	return string(e.text[:]) + *e.more.far
}

func (e *entry[S]) next() *entry[S] {
	if e.more == nil {
		return nil
	}
	return e.more.next.Load()
}

// place is where a key belongs.
type place struct{ hash, digest uint64 }

func newTable[S any, P interface {
	*S
	lifecycle
}](room *room, fresh func(*S)) *table[S, P] {
	// 16,384 entries a shard when full: a resize copies them in about a millisecond.
	n := min(max(1<<bits.Len64(uint64(room.max-1)>>14), 1), 1024)
	t := &table[S, P]{
		hasher: hasher{maphash.MakeSeed(), math.MaxUint64},
		shards: make([]shard[S], n),
		shift:  uint(64 - bits.Len(uint(n-1))),
		room:   room,
		fresh:  fresh,
	}
	for i := range t.shards {
		t.shards[i].earliest.Store(maxInstant)
		t.shards[i].arrived.Store(maxInstant)
		t.shards[i].barren.Store(math.MinInt64)
	}
	t.recent.Store(newRecent[S](1))
	return t
}

// hasher places keys.
type hasher struct {
	seed maphash.Seed
	bits uint64 // of a hash that count: all, but in tests of a broken hash
}

func (h *hasher) place(id string, salt uint64) place {
	hash := maphash.String(h.seed, id) & h.bits
	return place{hash, hash ^ salt&h.bits}
}

func (t *table[S, P]) shard(p place) *shard[S] { return &t.shards[p.hash>>t.shift] }

// find returns the entry of a key, or nil.
func (t *table[S, P]) find(p place, id string, of period) *entry[S] {
	set := t.recent.Load().set(p.digest)
	if e := set.home(p.digest); e != nil && e.is(id, of) {
		return e
	}
	return t.seek(set, p, id, of)
}

// seek is find where the key is not at home.
func (t *table[S, P]) seek(set *set[S], p place, id string, of period) *entry[S] {
	if e := set.search(p.digest, id, of); e != nil {
		return e
	}
	m := t.shard(p).entries.Load()
	if m == nil {
		return nil
	}
	head, _ := m.Load(p.digest)
	for e := head; e != nil; e = e.next() {
		if e.is(id, of) {
			set.put(p.digest, e)
			return e
		}
	}
	return nil
}

// insert returns the entry of a key, which it makes if there is none. It fails with ErrFull if there is no room: the
// room is reserved before the entry is made, so the table never holds more than it may.
func (t *table[S, P]) insert(p place, id string, of period) (*entry[S], error) {
	if !t.room.take() {
		if e := t.find(p, id, of); e != nil { // made by another since we looked
			return e, nil
		}
		return nil, ErrFull
	}
	e := newEntry[S](id, of)
	if t.fresh != nil {
		t.fresh(&e.state)
	}
	in := t.link(p, id, e)
	if in != e {
		t.room.give()
		return in, nil
	}
	t.lower(p, P(&e.state).over(of))
	t.grow()
	return e, nil
}

// lower keeps the promise of shard.earliest for an entry that may be over at the instant given.
func (t *table[S, P]) lower(p place, over int64) {
	s := t.shard(p)
	lower(&s.arrived, over)
	lower(&s.earliest, over)
}

func lower(a *atomic.Int64, to int64) {
	for {
		if at := a.Load(); at <= to || a.CompareAndSwap(at, to) {
			return
		}
	}
}

// link puts e, made for id, into the chain of its digest, unless its key is there already, and returns the entry that is.
func (t *table[S, P]) link(p place, id string, e *entry[S]) *entry[S] {
	s := t.shard(p)
	m := s.entries.Load()
	if m == nil {
		// The digest is as good a hash as any; xsync's own seeding would add nothing to ours.
		m = xsync.NewMapOfWithHasher[uint64, *entry[S]](func(digest, _ uint64) uint64 { return digest })
		if !s.entries.CompareAndSwap(nil, m) {
			m = s.entries.Load()
		}
	}
	if _, taken := m.LoadOrStore(p.digest, e); !taken {
		return e
	}
	in, of := e, e.period()
	m.Compute(p.digest, func(head *entry[S], _ bool) (*entry[S], bool) {
		for x := head; x != nil; x = x.next() {
			if x.is(id, of) {
				in = x
				return head, false
			}
		}
		if e.more == nil {
			e.more = new(more[S]) // nobody has e yet
		}
		e.more.next.Store(head)
		return e, false
	})
	return in
}

// remove takes e out of the table and reports whether it was there.
func (t *table[S, P]) remove(p place, e *entry[S]) (removed bool) {
	s := t.shard(p)
	s.entries.Load().Compute(p.digest, func(head *entry[S], _ bool) (*entry[S], bool) {
		if head == e {
			removed = true
			head = e.next()
		}
		for x := head; x != nil && !removed; x = x.next() {
			if x.next() == e {
				removed = true
				x.more.next.Store(e.next())
			}
		}
		return head, head == nil
	})
	t.recent.Load().set(p.digest).forget(e)
	if removed {
		allowed, denied := P(&e.state).settled()
		s.allowed.Add(allowed)
		s.denied.Add(denied)
		t.room.give()
	}
	return removed
}

// all yields the entries. It sees each entry that is there throughout, and may or may not see one that comes or goes
// meanwhile.
func (t *table[S, P]) all() iter.Seq[*entry[S]] {
	return func(yield func(*entry[S]) bool) {
		for i := range t.shards {
			for e := range t.shards[i].all() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (s *shard[S]) all() iter.Seq[*entry[S]] {
	return func(yield func(*entry[S]) bool) {
		m := s.entries.Load()
		if m == nil {
			return
		}
		m.Range(func(_ uint64, head *entry[S]) bool {
			for e := head; e != nil; {
				next := e.next() // before e may be removed
				if !yield(e) {
					return false
				}
				e = next
			}
			return true
		})
	}
}

// sweep removes what may be forgotten at now from the shards whose earliest has come, and returns how many it removed.
func (t *table[S, P]) sweep(now, grace int64) (removed int) {
	for i := range t.shards {
		removed += t.sweepShard(&t.shards[i], now, grace)
	}
	return removed
}

// reclaim is sweep without grace, until one shard gave something.
func (t *table[S, P]) reclaim(now int64) (removed int) {
	for i := range t.shards {
		s := &t.shards[i]
		if s.earliest.Load() > now || s.isBarren(now) {
			continue
		}
		if removed = t.sweepShard(s, now, 0); removed > 0 {
			return removed
		}
		s.barren.Store(now)
	}
	return 0
}

func (t *table[S, P]) sweepShard(s *shard[S], now, grace int64) (removed int) {
	if s.earliest.Load() > now {
		return 0
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if s.earliest.Load() > now { // swept while we waited
		return 0
	}
	s.arrived.Store(maxInstant)
	earliest := int64(maxInstant)
	for e := range s.all() {
		of := e.period()
		over := P(&e.state).over(of)
		if P(&e.state).bury(of, over, now, grace) && t.remove(t.place(e.id(), of.salt()), e) {
			removed++
			continue
		}
		earliest = min(earliest, over)
	}
	// An entry that the scan missed arrived after it began. Read arrived after the store: an insertion that lowers it
	// later lowers earliest later, too.
	s.earliest.Store(earliest)
	lower(&s.earliest, s.arrived.Load())
	return removed
}

// isBarren reports whether a scan has found nothing to reclaim a moment ago.
func (s *shard[S]) isBarren(now int64) bool {
	at := s.barren.Load()
	return at <= now && now < addSat(at, 100*msec)
}

// tally adds up what the shards and the entries have counted for Stats.
func (t *table[S, P]) tally() (allowed, denied uint64) {
	for i := range t.shards {
		allowed += t.shards[i].allowed.Load()
		denied += t.shards[i].denied.Load()
	}
	for e := range t.all() {
		a, d := P(&e.state).settled()
		allowed += a
		denied += d
	}
	return allowed, denied
}
