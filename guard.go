package weir

import "sync"

// guard is for state that is reused in place from period to period, under a lock of its own. A sweep marks it dead
// before its entry is removed, and whoever finds a dead entry looks again; so no count is lost to a sweep.
type guard struct {
	mu   sync.Mutex
	dead bool // guarded by mu

	// latest is the latest instant the state was used at; an earlier reading of the clock counts as it, so that time
	// does not go back for one caller. It starts as the instant of birth, which whoever uses the state first reads after
	// the entry is in the table: by then no earlier entry of the key was swept for being over at a later instant.
	latest int64 // guarded by mu
	born   bool  // guarded by mu
}

func (g *guard) guarded() *guard { return g }

func (g *guard) bear(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.born {
		g.born, g.latest = true, now
	}
}

// settled implements lifecycle: what is reused in place is counted in its shard.
func (g *guard) settled() (allowed, denied uint64) { return 0, 0 }

// overAt is over, for a state that is over at the instant that end returns.
func (g *guard) overAt(end func() int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.born {
		return maxInstant // its first use tells
	}
	return end()
}

// buryAt is bury, for such a state.
func (g *guard) buryAt(end func() int64, now, grace int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.born && (now < end() || now < addSat(g.latest, grace)) {
		return false
	}
	g.dead = true
	return true
}

type guardedState[S any] interface {
	*S
	lifecycle
	guarded() *guard
}

// held is an entry of a table with its state locked.
type held[S any] struct {
	*entry[S]
	shard *shard[S]
	place place
	now   int64 // not before the state was last used
}

// hold returns the state of a key, live and locked; it makes one if create is set, and returns no entry otherwise.
func hold[S any, P guardedState[S]](l *Limiter, t *table[S, P], id string, of period, create bool) (held[S], error) {
	p := t.place(id, of.salt())
	for {
		now := l.clock.read()
		e := t.find(p, id, of)
		if e == nil && !create {
			return held[S]{shard: t.shard(p), now: now}, nil
		}
		if e == nil {
			var err error
			if e, err = t.insert(p, id, of); err != nil {
				return held[S]{}, l.fail(err)
			}
		}
		g := P(&e.state).guarded()
		g.mu.Lock()
		if g.born && !g.dead {
			g.latest = max(now, g.latest) // denials count: what was dropped for being over at now is not there earlier
			return held[S]{e, t.shard(p), p, g.latest}, nil
		}
		dead := g.dead
		g.mu.Unlock()
		if dead { // a sweep has marked it and is about to remove it
			t.remove(p, e)
		} else {
			g.bear(l.clock.read())
		}
	}
}

// drop marks the held state dead and removes it.
func drop[S any, P guardedState[S]](t *table[S, P], h held[S]) {
	g := P(&h.state).guarded()
	g.dead = true
	g.mu.Unlock()
	t.remove(h.place, h.entry)
}

// count notes a verdict for Stats.
func (s *shard[S]) count(state State) {
	if state == Allow {
		s.allowed.Add(1)
	} else {
		s.denied.Add(1)
	}
}
