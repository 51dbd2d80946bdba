package weir

import (
	"math"
	"sync/atomic"
)

// The places that are held of one caller are a bucket that has one epoch. The bits of its number:
//
//	shared  a flight of the caller decides, with its lock held
//	unnoted the bounds of the chunk may be too late for the end of the bucket
//	admitted 6: how many were admitted that are not in table.places, as all were when it wraps
//	held    40: the cost of the places
//
// While a place is held, or shared is set, the slot is not released: so a place is given back by an
// atomic addition, without a search.
const (
	sharedBit    = 1 << 47
	unnotedBit   = 1 << 46
	admittedOnce = 1 << 40
	admittedMask = unnotedBit - admittedOnce
	heldMask     = admittedOnce - 1
	maxHeld      = heldMask - 1
)

// heldIn returns the cost held, and admittedIn the admissions, in a state word.
func heldIn(state uint64) int64      { return int64(state&heldMask) - 1 }
func admittedIn(state uint64) uint64 { return state & admittedMask / admittedOnce }

func placesPeriod(scaleMs, series int64) period {
	return periodOf(placesKind, scaleMs, series<<1|placesNumber)
}

// hasPlaces reports whether a bucket is one of places.
func (s *slot) hasPlaces() bool {
	k, _, number := s.period()
	return k == placesKind && number&placesNumber != 0
}

// location is where a slot of a table is: the number of the shard 32, that of the slot 32.
type location uint64

// shardOf returns the shard of a location, and the number of the slot.
func (t *table) shardOf(at location) (*shard, int) { return &t.shards[at>>32], int(uint32(at)) }

// addPlace admits a cost to a slot with this state. It reports false if the state is another by
// now.
func (t *table) addPlace(s *slot, state, cost uint64) bool {
	next := state + cost + admittedOnce
	if state&admittedMask == admittedMask {
		next = state + cost - admittedMask
	}
	added := atomic.CompareAndSwapUint64(&s[stateWord], state, next)
	if added && next&admittedMask == 0 {
		t.places.Add(t.places.One(), int64(admittedIn(state)+1))
	}
	return added
}

// makePlaces makes the bucket of a caller's places, if there is none. The next sweep may remove it.
func (l *Limiter) makePlaces(k stateKey) error {
	packed, p := l.callers.pack(k.id), placesPeriod(k.scale, k.series)
	for at := (reading{horizon: math.MinInt64}); ; {
		at.now = l.clock.Read()
		c, err := l.callers.lock(packed, k.id, &p, &at, true)
		switch {
		case err == errEarlier:
			continue
		case err != nil:
			return err
		case c.slot == nil:
			c.insert(content{}, 0)
			c.shard.noteEnd(c.n, noInstant)
		}
		c.shard.mu.Unlock()
		return nil
	}
}

// noteIdle clears bits of a bucket of places, and lowers the bounds to its end if it is idle.
func (sh *shard) noteIdle(s *slot, n int, bits int64) {
	for state := s.load(stateWord); !s.swap(state, count(state)&^(bits|unnotedBit)); {
		state = s.load(stateWord)
	}
	sh.noteEnd(n, noInstant)
}

// unnote notes that the bounds of a chunk are those of other buckets. It reports false if the state
// is another by now. The shard's mutex is held.
func (s *slot) unnote(state uint64) bool {
	return !s.hasPlaces() || s.swap(state, count(state)|unnotedBit)
}

// place is a cost that is held in a slot.
type place struct {
	*slot
	l    *Limiter
	at   location
	back uint64 // the cost, negated
}

// release gives the place back. Then the slot may be another bucket's at any time.
func (p *place) release() {
	if state := atomic.AddUint64(&p.slot[stateWord], p.back); state&(sharedBit|unnotedBit) != 0 {
		p.released(state)
	}
}

// released wakes who waits for the place, and notes that the bucket is idle. state is that after
// the release. If the bucket is another by now, that does no harm.
func (p *place) released(state uint64) {
	if state&sharedBit == 0 && heldIn(state) > 0 {
		return
	}
	sh, n := p.l.callers.shardOf(p.at)
	sh.mu.Lock()
	x, key := sh.index.Load(), stateKey{}
	state = p.load(stateWord)
	if state&countMask != 0 && x.slot(n) == p.slot && p.hasPlaces() {
		if sh.noteIdle(p.slot, n, 0); state&sharedBit != 0 {
			_, key.scale, key.series = p.period()
			key.series >>= 1
			key.id = string(x.appendID(nil, p.slot))
		}
	}
	sh.mu.Unlock()
	if key.id == "" {
		return
	}
	t := p.l.flights()
	if h, f, _ := t.lock(key, false); h.entry != nil {
		f.(*flight).wake()
		t.unlock(h, seen)
	}
}
