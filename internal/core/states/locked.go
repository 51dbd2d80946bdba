package states

import "github.com/weirgo/weir/internal/core/algorithm"

// Use is what was done with a state.
type Use int

// The uses.
const (
	Seen Use = iota // nothing was changed
	Changed
	Denied
	Admitted
)

// Locked is a state that is locked.
type Locked[S State] struct {
	State S
	Now   int64     // the clock's reading before the lock, or the last use if later; Unlock stores it
	Entry *Entry[S] // nil: there is none, and the state is not to be changed
	table *Table[S]
}

// Reserve makes room for what an admission adds to a state. It reports false if there is none.
func (h *Locked[S]) Reserve(meta string) bool { return h.Grow(h.State.Growth(meta)) }

// Grow makes room for n more bytes of a state that is kept. It reports false if there is none.
func (h *Locked[S]) Grow(n int64) bool {
	if n > 0 && !h.table.Room.Grow(n) {
		return false
	}
	h.Entry.bytes += n
	return true
}

// Unlock ends the use of a state: it counts the decision, stores Now and the bytes, and notes the
// end. A state beside a slot that counts nothing leaves the table.
func (h *Locked[S]) Unlock(u Use) {
	t, e := h.table, h.Entry
	switch {
	case u == Admitted:
		e.shard.allowed.Add(1)
	case u == Denied && e != nil:
		e.shard.denied.Add(1)
	case u == Denied:
		t.denied.Add(1)
	}
	if e == nil {
		return
	}
	if u != Seen {
		e.latest = h.Now
	}
	if size := e.state.Bytes(); size != e.bytes {
		t.Room.Bytes.Add(size - e.bytes)
		e.bytes = size
	}
	e.expires = h.expires()
	if t.beside && e.expires == algorithm.Never {
		h.Remove() // its slot is enough
		return
	}
	e.shard.expiry.note(e.end())
	e.mu.Unlock()
}

// Relock locks a state again after Unlock, or LetGo, at a reading of the clock, while something has
// it stay: the state does not expire.
func (h *Locked[S]) Relock(now int64) {
	h.Entry.mu.Lock()
	h.Now = max(now, h.Entry.latest)
}

// LetGo unlocks a state that was not used.
func (h *Locked[S]) LetGo() { h.Entry.mu.Unlock() }

// Remove removes a state, and unlocks it.
func (h *Locked[S]) Remove() {
	h.table.mark(h.Entry)
	h.Entry.mu.Unlock()
	h.table.delete(h.Entry)
}

// MakeRoom unlocks a state for which Reserve found no room, and removes expired states of others. A
// state that counts nothing is removed too. It reports false if that freed nothing.
func (h *Locked[S]) MakeRoom() bool {
	before := h.table.Room.Bytes.Load()
	if h.expires() == algorithm.Never {
		h.Remove()
	} else {
		h.Unlock(Changed)
	}
	return h.table.Room.Bytes.Load() < before || h.table.FullBytes(h.Now)
}

func (h *Locked[S]) expires() int64 { return h.State.Expires(h.Entry.key.Scale) }
