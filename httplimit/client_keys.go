package httplimit

import (
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultMaxKeys is a hundredth of the default table: filling the table takes a hundred
	// addresses.
	defaultMaxKeys = 10_000

	keyShards = 16

	// maxShardKeys bounds the memory to about 40 MB when every shard is full. In a full shard,
	// clients use their shared key in place of further ones.
	maxShardKeys = 1 << 16
)

// clientKeys bounds the number of different keys that each client uses, so that no client can fill
// the table. It holds seeded hashes only: two keys with one hash count as one, which admits one
// bucket too many.
//
// A shard has two generations. A key is entered in the current one and dropped when the next but
// one begins: at least one life after its last use, when its buckets have expired.
type clientKeys struct {
	max      int
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

func newClientKeys(most int) *clientKeys {
	k := &clientKeys{max: most, maxShard: maxShardKeys, seed: maphash.MakeSeed()}
	for i := range k.shards {
		k.shards[i].cur, k.shards[i].prev = newGeneration(), newGeneration()
	}
	return k
}

// lives records that a bucket may live for d after its last use.
func (k *clientKeys) lives(d time.Duration) {
	for {
		old := k.life.Load()
		if int64(d) <= old || k.life.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// admit reports whether client may use key: it uses the key already, or fewer than max keys.
func (k *clientKeys) admit(client, key []byte, now time.Time) bool {
	owner := maphash.Bytes(k.seed, client)
	pair := maphash.Comparable(k.seed, [2]uint64{owner, maphash.Bytes(k.seed, key)})
	s := &k.shards[owner%keyShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now, time.Duration(k.life.Load()))
	if _, ok := s.cur.keys[pair]; ok {
		return true
	}
	if _, ok := s.prev.keys[pair]; ok {
		s.prev.remove(owner, pair)
	} else if s.cur.clients[owner]+s.prev.clients[owner] >= k.max ||
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
	if g.clients[owner]--; g.clients[owner] == 0 {
		delete(g.clients, owner)
	}
}

// sharedPart begins the part of a joined key that a client's keys beyond the bound share. No
// extracted key collides with it: it makes a joined key of three parts, and theirs have two.
var sharedPart = string(appendPart(nil, "shared"))

// shareKey sets c.shared if the client uses too many keys.
func (m *middleware) shareKey(c *call, r *http.Request) {
	client, ok := m.clientOf(c.client[:0], r)
	if c.client = client; !ok || m.keys.admit(client, c.key, m.Now()) {
		return
	}
	c.shared = appendPart(append(c.shared, sharedPart...), client)
	m.logShared(r.Context(), string(client))
}

// clientOf appends the client that a request's keys count for: the client's address or prefix, or
// the peer's if the forwarding fields are invalid. ok is false if the peer has no IP address.
func (m *middleware) clientOf(dst []byte, r *http.Request) (client []byte, ok bool) {
	ip := m.ClientIP
	if ip.bits > defaultIPv6Bits {
		ip.bits = defaultIPv6Bits // a client has all addresses of its /64
	}
	if client, err := ip.appendKey(dst, r); err == nil {
		return client, true
	}
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil {
		return dst, false
	}
	return ip.appendAddr(dst, peer), true
}

// oneKeyEach reports whether e extracts one key only for each client address.
func oneKeyEach(e Extractor) bool {
	ip, ok := e.(IP)
	return ok && ip.bits <= defaultIPv6Bits
}

// findIP returns the first IP in e.
func findIP(e Extractor) (IP, bool) {
	switch e := e.(type) {
	case IP:
		return e, true
	case join:
		for _, part := range e {
			if ip, ok := findIP(part); ok {
				return ip, true
			}
		}
	}
	return IP{}, false
}
