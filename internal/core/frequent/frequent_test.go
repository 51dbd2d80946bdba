package frequent

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// top returns the n keys with the highest counts, highest first.
func top(k *Keys[int], n int) []*Counter[int] {
	all := slices.Clone(k.All())
	slices.SortFunc(all, func(a, b *Counter[int]) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

func TestExactUnderItsSize(t *testing.T) {
	k := New[int](10)
	for i := range 10 {
		for range 10 - i {
			k.Add(fmt.Sprint("k", i), 1).Value = i
		}
	}
	most := top(k, 3)
	assert.EqualValues(t, 55, k.Total())
	require.Len(t, most, 3)
	for i, c := range most {
		assert.Equal(t, fmt.Sprint("k", i), c.Key)
		assert.EqualValues(t, 10-i, c.N)
		assert.Zero(t, c.Error)
		assert.EqualValues(t, i, c.Value)
	}
}

// The bounds of the algorithm hold at several instants of a stream with a few frequent keys and
// many that occur once, such as that of a botnet that changes its keys.
func TestErrorIsBounded(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		rng := rand.New(rand.NewPCG(seed, 0))
		zipf := rand.NewZipf(rng, 1.1, 2, 1<<20)
		const limit = 64
		k, exact := New[int](limit), map[string]uint64{}
		for i := range 50_000 {
			key := fmt.Sprint(zipf.Uint64())
			k.Add(key, 1)
			exact[key]++
			if i%5000 == 0 {
				checkBounds(t, k, exact, limit)
			}
		}
		checkBounds(t, k, exact, limit)
	}
}

func checkBounds(t *testing.T, k *Keys[int], exact map[string]uint64, limit int) {
	t.Helper()
	most, total := top(k, limit), k.Total()
	require.LessOrEqual(t, len(k.heap), limit)
	require.Len(t, k.at, len(k.heap))
	seen := map[string]bool{}
	var sum uint64
	for i, c := range most {
		seen[c.Key] = true
		sum += c.N
		assert.LessOrEqual(t, exact[c.Key], c.N, c.Key)
		assert.GreaterOrEqual(t, exact[c.Key], c.N-c.Error, c.Key)
		assert.LessOrEqual(t, c.Error, total/uint64(limit), c.Key)
		if i > 0 {
			assert.LessOrEqual(t, c.N, most[i-1].N)
		}
	}
	assert.Equal(t, total, sum, "every hit is in one counter")
	for key, n := range exact {
		if n > total/uint64(limit) {
			assert.True(t, seen[key], "%s came %d times of %d", key, n, total)
		}
	}
}

// Negative control: a new key starts at zero and does not inherit the count of the key it replaces.
func TestErrorControlThatForgetsIsRejected(t *testing.T) {
	k, exact := New[int](2), map[string]uint64{}
	for _, key := range []string{"a", "b", "c", "c"} {
		k.Add(key, 1)
		exact[key]++
	}
	k.heap[0].N = 0
	probe := &testing.T{}
	checkBounds(probe, k, exact, 2)
	assert.True(t, probe.Failed())
}

// A key that takes the counter of another one finds none of its value.
func TestValuesAreOfOneKey(t *testing.T) {
	k := New[int](1)
	k.Add("a", 3).Value = 7
	b := k.Add("b", 1)
	assert.Equal(t, &Counter[int]{Key: "b", N: 4, Error: 3}, b)
	assert.Same(t, b, k.Find("b"))
	assert.Nil(t, k.Find("a"))
}
