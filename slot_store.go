package weir

import "math"

// slotStore keeps the states of an algorithm in slots: one a caller, reused in place from period to
// period, or one a caller in each fixed window.
type slotStore struct {
	l    *Limiter
	kind kind
}

// noSlot is the state of a caller that has none. It is never written to.
var noSlot = slot{stateWord: 1, deniedWord: 1 << 63, usedWord: 1 << 63}

func (st *slotStore) lock(p params, create bool) (lockedState[slot], error) {
	t, key := st.l.callers, periodOf(st.kind, p.scale, 0)
	if st.kind == fixedKind {
		t = st.l.buckets
	}
	hash := t.hash(p.id)
	for at := (reading{horizon: math.MinInt64}); ; {
		at.now = st.l.clock.read()
		if st.kind == fixedKind {
			w := st.l.window(at.now, p.scale)
			key, at.stamp = w.fixed, w.stamp(at.now)
		}
		c, err := t.lock(hash, p.id, &key, &at, create)
		switch {
		case err == errEarlier:
			continue
		case err != nil:
			return lockedState[slot]{}, err
		case c.slot == nil:
			return lockedState[slot]{state: &noSlot, now: at.now, cell: c}, nil
		case st.kind == fixedKind:
			return lockedState[slot]{state: c.slot, kept: true, now: at.now, cell: c}, nil
		case c.fresh:
			c.slot[deniedWord], c.slot[usedWord] = noSlot[deniedWord], noSlot[usedWord]
		}
		return lockedState[slot]{state: c.slot, kept: true, now: max(at.now, int64(c.slot[usedWord])), cell: c}, nil
	}
}

func (st *slotStore) unlock(h lockedState[slot], u use) {
	if h.kept && (h.cell.fresh || u == changed) { // a decision on a known caller ends its state no sooner
		h.cell.noteEnd(h.state.end())
	}
	switch u {
	case denied:
		h.cell.tally(Deny)
	case admitted:
		h.cell.tally(Allow)
	}
	h.cell.unlock()
}

func (st *slotStore) remove(h lockedState[slot]) {
	h.cell.remove()
	h.cell.unlock()
}

// A slot never grows.
func (st *slotStore) reserve(lockedState[slot], params) bool { return true }
func (st *slotStore) reclaim(int64) bool                     { return false }
