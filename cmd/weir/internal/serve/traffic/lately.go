package traffic

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Lately holds some of what callers did last, of which each shares its places with the others of
// its hash: so one that does much takes them from few others. Make one with NewLately. It is safe
// for concurrent use.
type Lately[T any] struct {
	seed  maphash.Seed
	rings [256]ring[T]
}

// ring is what the callers of one hash did last.
type ring[T any] struct {
	mu   sync.Mutex
	last []noted[T] // guarded by mu
	n    int        // guarded by mu; how much there was
}

type noted[T any] struct {
	key  string
	what T
}

// LongestKey is how much of a key is held, in bytes.
const LongestKey = 1 << 10

func cut(key string) string { return key[:min(len(key), LongestKey)] }

// NewLately returns an empty Lately, with so many places for the callers of one hash.
func NewLately[T any](places int) *Lately[T] {
	l := &Lately[T]{seed: maphash.MakeSeed()}
	for i := range l.rings {
		l.rings[i].last = make([]noted[T], places)
	}
	return l
}

// ring returns the ring of a key that was cut.
func (l *Lately[T]) ring(key string) *ring[T] {
	return &l.rings[maphash.String(l.seed, key)%uint64(len(l.rings))]
}

// Add adds what a caller did. It does not retain key, which may be a part of a request.
func (l *Lately[T]) Add(key string, what T) {
	key = strings.Clone(cut(key))
	r := l.ring(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[r.n%len(r.last)] = noted[T]{key, what}
	r.n++
}

// Of returns what a caller did, the last first.
func (l *Lately[T]) Of(key string) (all []T) {
	key = cut(key)
	r := l.ring(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.n - 1; i >= max(0, r.n-len(r.last)); i-- {
		if at := &r.last[i%len(r.last)]; at.key == key {
			all = append(all, at.what)
		}
	}
	return all
}

// Sample is a request that was admitted.
type Sample struct {
	Of, Agent string
	At        time.Time
}

const samples = 8 // of callers of one hash: with keys and agents at most 3 MiB

// NewSamples returns a Lately of requests.
func NewSamples() *Lately[Sample] { return NewLately[Sample](samples) }

// SampleOf returns a Sample that retains nothing of a request.
func SampleOf(of, agent string, at time.Time) Sample {
	return Sample{strings.Clone(of), strings.Clone(agent[:min(len(agent), longestHashed)]), at}
}
