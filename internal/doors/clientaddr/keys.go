package clientaddr

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultKeys is a hundredth of the default table: filling the table takes a hundred addresses.
	DefaultKeys = 10_000

	keyShards = 16

	// maxShardKeys bounds the memory to about 40 MB when every shard is full. In a full shard,
	// clients use their shared key in place of further ones.
	maxShardKeys = 1 << 16
)

// Keys bounds the number of different keys that each client uses. It is safe for concurrent use. It
// holds seeded hashes only: two keys with one hash count as one, which admits one bucket too many.
//
// A shard has two generations. A key is entered in the current one and dropped when the next but
// one begins: at least one life after its last use, when its buckets have expired.
type Keys struct {
	most     int
	maxShard int // bounds the keys of a shard
	seed     maphash.Seed
	life     atomic.Int64 // ns from a bucket's last use to its expiry, at most; only grows

	shards [keyShards]keyShard
}

type keyShard struct {
	mu        sync.Mutex
	cur, prev generation // guarded by mu; a key is in one of them at most
	began     time.Time  // guarded by mu; when cur began
}

// generation holds the keys used in a span of time, and how many of them each client has. Both maps
// are keyed by hashes and hold no pointers.
type generation struct {
	keys    map[uint64]struct{}
	clients map[uint64]int
}

func newGeneration() generation {
	return generation{make(map[uint64]struct{}), make(map[uint64]int)}
}

// NewKeys returns Keys with so many for each client.
func NewKeys(most int) *Keys {
	k := &Keys{most: most, maxShard: maxShardKeys, seed: maphash.MakeSeed()}
	for i := range k.shards {
		k.shards[i].cur, k.shards[i].prev = newGeneration(), newGeneration()
	}
	return k
}

// Most returns how many keys a client may use.
func (k *Keys) Most() int { return k.most }

// Lives records that a bucket may live for d after its last use.
func (k *Keys) Lives(d time.Duration) {
	for {
		old := k.life.Load()
		if int64(d) <= old || k.life.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Life returns how long a key counts after its last use, at least: the longest of Lives.
func (k *Keys) Life() time.Duration { return time.Duration(k.life.Load()) }

// Admit reports whether client may use key: it uses the key already, or fewer than most keys.
func (k *Keys) Admit(client, key []byte, now time.Time) bool {
	owner := maphash.Bytes(k.seed, client)
	pair := maphash.Comparable(k.seed, [2]uint64{owner, maphash.Bytes(k.seed, key)})
	s := &k.shards[owner%keyShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now, k.Life())
	if _, ok := s.cur.keys[pair]; ok {
		return true
	}
	if _, ok := s.prev.keys[pair]; ok {
		s.prev.remove(owner, pair)
	} else if s.cur.clients[owner]+s.prev.clients[owner] >= k.most ||
		len(s.cur.keys)+len(s.prev.keys) >= k.maxShard {
		return false
	}
	s.cur.keys[pair] = struct{}{}
	s.cur.clients[owner]++
	return true
}

// turn begins a new generation once the current one has lasted for life. mu is held.
func (s *keyShard) turn(now time.Time, life time.Duration) {
	switch age := now.Sub(s.began); {
	case age < life:
	case age < 2*life:
		s.prev, s.cur, s.began = s.cur, newGeneration(), now
	default:
		s.prev, s.cur, s.began = newGeneration(), newGeneration(), now
	}
}

func (g *generation) remove(owner, pair uint64) {
	delete(g.keys, pair)
	g.clients[owner]--
	if g.clients[owner] == 0 {
		delete(g.clients, owner)
	}
}
