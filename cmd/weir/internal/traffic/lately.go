package traffic

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Lately holds some of the last requests of callers, of which each shares its places with the
// others of its hash. They take at most 3 MiB. Make one with NewLately. It is safe for concurrent
// use.
type Lately struct {
	seed  maphash.Seed
	rings [256]struct {
		mu   sync.Mutex
		last [samples]sample // guarded by mu
		n    int             // guarded by mu; how many there were
	}
}

// Sample is a request that was admitted.
type Sample struct {
	Of, Agent string
	At        time.Time
}

type sample struct {
	key string
	Sample
}

const (
	samples    = 8
	longestKey = 1 << 10 // of which more is left out
)

// NewLately returns an empty Lately.
func NewLately() *Lately { return &Lately{seed: maphash.MakeSeed()} }

// Add adds a request of a caller, of whose text it retains none.
func (l *Lately) Add(key string, s Sample) {
	key = strings.Clone(key[:min(len(key), longestKey)])
	s.Of = strings.Clone(s.Of)
	s.Agent = strings.Clone(s.Agent[:min(len(s.Agent), longestHashed)])
	r := &l.rings[maphash.String(l.seed, key)%uint64(len(l.rings))]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[r.n%samples] = sample{key, s}
	r.n++
}

// Of returns those of a caller, the last one first.
func (l *Lately) Of(key string) (all []Sample) {
	key = key[:min(len(key), longestKey)]
	r := &l.rings[maphash.String(l.seed, key)%uint64(len(l.rings))]
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.n - 1; i >= max(0, r.n-samples); i-- {
		if s := &r.last[i%samples]; s.key == key {
			all = append(all, s.Sample)
		}
	}
	return all
}
