package proxy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopKIsExactUnderItsCap(t *testing.T) {
	k := newTopK(10)
	for i := range 10 {
		for range 10 - i {
			k.hit(fmt.Sprint("k", i), int64(i))
		}
	}
	top, total := k.top(3)
	assert.EqualValues(t, 55, total)
	require.Len(t, top, 3)
	for i, c := range top {
		assert.Equal(t, fmt.Sprint("k", i), c.key)
		assert.EqualValues(t, 10-i, c.n)
		assert.Zero(t, c.err)
		assert.EqualValues(t, i, c.last)
	}
}

// A stream of a few heavy keys among many that come once, as a botnet that rotates its keys would make it: the bounds of
// the algorithm hold at each of some instants.
func TestTopKBoundsItsError(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		rng := rand.New(rand.NewPCG(seed, 0))
		zipf := rand.NewZipf(rng, 1.1, 2, 1<<20)
		const limit = 64
		k, exact := newTopK(limit), map[string]uint64{}
		for i := range 50_000 {
			key := fmt.Sprint(zipf.Uint64())
			k.hit(key, 0)
			exact[key]++
			if i%5000 == 0 {
				checkTopK(t, k, exact, limit)
			}
		}
		checkTopK(t, k, exact, limit)
	}
}

func checkTopK(t *testing.T, k *topk, exact map[string]uint64, limit int) {
	t.Helper()
	top, total := k.top(limit)
	require.LessOrEqual(t, len(k.heap), limit)
	require.Len(t, k.at, len(k.heap))
	seen := map[string]bool{}
	var sum uint64
	for i, c := range top {
		seen[c.key] = true
		sum += c.n
		assert.LessOrEqual(t, exact[c.key], c.n, c.key)
		assert.GreaterOrEqual(t, exact[c.key], c.n-c.err, c.key)
		assert.LessOrEqual(t, c.err, total/uint64(limit), c.key)
		if i > 0 {
			assert.LessOrEqual(t, c.n, top[i-1].n)
		}
	}
	assert.Equal(t, total, sum, "every hit is in one counter")
	for key, n := range exact {
		if n > total/uint64(limit) {
			assert.True(t, seen[key], "%s came %d times of %d", key, n, total)
		}
	}
}

// The check has to reject a counter that forgets: one that starts a newcomer at zero in place of the one it replaces.
func TestTopKCheckRejectsOneThatForgets(t *testing.T) {
	k, exact := newTopK(2), map[string]uint64{}
	for _, key := range []string{"a", "b", "c", "c"} {
		k.hit(key, 0)
		exact[key]++
	}
	k.heap[0].n = 0
	probe := &testing.T{}
	checkTopK(probe, k, exact, 2)
	assert.True(t, probe.Failed())
}

func TestTopKTakesConcurrentHits(t *testing.T) {
	k := newTopK(8)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				k.hit(fmt.Sprint((i+g)%20), 0)
				if i%100 == 0 {
					k.top(3)
				}
			}
		})
	}
	wg.Wait()
	top, total := k.top(8)
	assert.EqualValues(t, 16_000, total)
	var sum uint64
	for _, c := range top {
		sum += c.n
	}
	assert.EqualValues(t, 16_000, sum)
}
