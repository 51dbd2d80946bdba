package weir

import "math"

// slotStore keeps the states of an algorithm in slots: one for each caller, reused from period to
// period, or of a fixed window one for each caller in each window.
type slotStore struct {
	l    *Limiter
	kind kind
}

// noSlot is the state of a caller that has none. It is never written to.
var noSlot = slot{stateWord: 1, deniedWord: 1 << 63, usedWord: 1 << 63}

func (st *slotStore) lock(id string, scaleMs int64, create bool) (lockedState[slot], error) {
	t, key := st.l.callers, periodOf(st.kind, scaleMs, 0)
	if st.kind == fixedKind {
		t = st.l.buckets
	}
	packed := t.pack(id)
	for at := (reading{horizon: math.MinInt64}); ; {
		at.now = st.l.clock.read()
		if st.kind == fixedKind {
			w := st.l.window(at.now, scaleMs)
			key, at.stamp = w.fixed, w.stamp(at.now)
		}
		c, err := t.lock(packed, id, &key, &at, create)
		switch {
		case err == errEarlier:
			continue
		case err != nil:
			return lockedState[slot]{}, err
		case c.slot == nil:
			return lockedState[slot]{handle{now: at.now, shard: c.shard}, &noSlot}, nil
		}
		h := lockedState[slot]{handle{at.now, c.shard, nil, int32(c.n), true, c.fresh}, c.slot}
		if st.kind != fixedKind {
			if c.fresh {
				h.state[deniedWord], h.state[usedWord] = noSlot[deniedWord], noSlot[usedWord]
			}
			h.now = max(at.now, int64(h.state[usedWord]))
		}
		return h, nil
	}
}

func (h handle) slot() *slot { return h.shard.index.Load().slot(int(h.n)) }

func (st *slotStore) unlock(h handle, u use) {
	if h.kept && (h.fresh || u == changed) { // a decision on a known caller ends its state no sooner
		h.shard.noteEnd(int(h.n), h.slot().end())
	}
	switch u {
	case denied:
		h.shard.denied++
	case admitted:
		h.shard.allowed++
	}
	h.shard.mu.Unlock()
}

func (st *slotStore) remove(h handle) {
	h.shard.release(h.slot(), int(h.n))
	h.shard.mu.Unlock()
}

// A slot never grows.
func (st *slotStore) reserve(handle, string) bool { return true }
func (st *slotStore) makeRoom(handle) bool        { return false }
