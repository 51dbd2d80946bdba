package ids

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHashersDiffer(t *testing.T) {
	a, b := NewHasher(), NewHasher()
	same := 0
	for range 64 {
		id := string(rune('a' + rand.IntN(26)))
		if a.Hash(id) == b.Hash(id) {
			same++
		}
	}
	assert.Zero(t, same, "no client can aim at one shard")
}

// IDs that differ in two bytes spread, at every length at which the hash function changes.
func TestSimilarIDsSpread(t *testing.T) {
	const n, places = 1024, 32
	h := NewHasher()
	for _, length := range []int{2, 7, 8, 9, 15, 16, 17, 22, 23, 64} {
		for _, at := range []int{0, length / 3, length - 2} {
			id := make([]byte, length)
			// by the bits for the shard, the place in its index, and the tag
			var shards, low, tags [places]int
			seen := map[uint64]bool{}
			for i := range n {
				id[at], id[at+1] = byte(i), byte(i>>8)
				hash := h.Hash(string(id))
				if hash != h.HashBytes(id) || seen[hash] {
					t.Fatalf("%d bytes, changed at %d: %x again, or not of bytes", length, at, hash)
				}
				seen[hash] = true
				shards[hash>>32%places]++
				low[hash%places]++
				tags[hash>>27%places]++
			}
			for i := range places {
				for _, got := range [][places]int{shards, low, tags} {
					require.InDelta(t, n/places, got[i], 3*n/places/2, "%d bytes, changed at %d", length, at)
				}
			}
		}
	}
}

// IDs of the same words have different hashes if the order of the words or the length differs.
func TestOrderAndLengthAreHashed(t *testing.T) {
	h := NewHasher()
	seen := map[uint64]string{}
	ids := []string{"aaaaaaaabbbbbbbb", "bbbbbbbbaaaaaaaa", "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}
	for n := range Inline + 2 {
		ids = append(ids, string(make([]byte, n)))
	}
	for _, id := range ids {
		hash := h.Hash(id)
		require.NotContains(t, seen, hash, "%q and %q", id, seen[hash])
		seen[hash] = id
	}
}

// IDs that an unseeded hash puts into one of 64 shards spread like others in 20 processes.
func TestFloodAimedAtOneShard(t *testing.T) {
	const n, shards = 1000, 64
	var flood []string
	for i := 0; len(flood) < n; i++ {
		id := strconv.Itoa(i)
		h := fnv.New64a()
		h.Write([]byte(id))
		if h.Sum64()>>32%shards == 0 {
			flood = append(flood, id)
		}
	}
	for range 20 {
		h := NewHasher()
		var load [shards]int
		for _, id := range flood {
			load[h.Hash(id)>>32%shards]++
		}
		const mean = float64(n) / shards
		for _, got := range load {
			assert.Less(t, float64(got), mean+8*math.Sqrt(mean))
		}
	}
}
