package httplimit

import (
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultMaxKeys is a hundredth of the default table: it takes a hundred hostile addresses to fill
	// it.
	defaultMaxKeys = 10_000

	keyShards = 16

	// maxShardKeys bounds the memory: about 40 MB when every shard is full. A client that finds its
	// shard full uses its shared key in place of further ones.
	maxShardKeys = 1 << 16
)

// clientKeys remembers how many different keys each client uses, so that none can fill the table.
// It holds hashes only: two keys with one hash count as one, which costs a bucket at most, and the
// seed keeps anybody from choosing them.
//
// A shard has two generations. A key is remembered in the current one, and forgotten when the next
// but one begins: at least one life after its last use, when its buckets are over.
type clientKeys struct {
	max      int
	maxShard int // bounds the keys of a shard
	seed     maphash.Seed
	life     atomic.Int64 // ns; how long a bucket may live after its last use; only grows

	shards [keyShards]keyShard
}

type keyShard struct {
	mu        sync.Mutex
	cur, prev generation // guarded by mu; a key is in one of them at most
	began     time.Time  // guarded by mu; when cur began
}

// generation is the keys of a span of time, and how many each client has among them. Both maps are
// keyed by hashes and hold no pointers.
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

// lives notes that a bucket may live for d after its last use.
func (k *clientKeys) lives(d time.Duration) {
	for {
		old := k.life.Load()
		if int64(d) <= old || k.life.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// admit reports whether client may use key: it does already, or has room for another one.
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
	} else if s.cur.clients[owner]+s.prev.clients[owner] >= k.max || len(s.cur.keys)+len(s.prev.keys) >= k.maxShard {
		return false
	}
	s.cur.keys[pair] = struct{}{}
	s.cur.clients[owner]++
	return true
}

// turn begins a new generation if the current one has lasted for life. mu is held.
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

// sharedPart begins the part of a joined key that a client's keys beyond the bound share. A joined
// key of three parts is never one of two, so no extracted key leads there.
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
// the peer's if the forwarding fields cannot be read. ok is false if the peer has no IP address.
func (m *middleware) clientOf(dst []byte, r *http.Request) (client []byte, ok bool) {
	ip := m.ClientIP
	if ip.bits > defaultIPv6Bits {
		ip.bits = defaultIPv6Bits // addresses within a /64 cost nothing
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

// oneKeyEach reports whether e has one key for each client address.
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
