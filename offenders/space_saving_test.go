package offenders

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newSpaceSaving(max int) *spaceSaving {
	return &spaceSaving{max: max, at: make(map[string]*counter)}
}

func TestExactUnderItsSize(t *testing.T) {
	k := newSpaceSaving(10)
	for i := range 10 {
		for range 10 - i {
			k.add(fmt.Sprint("k", i), 1, time.UnixMilli(int64(i)))
		}
	}
	top, total := k.top(3)
	assert.EqualValues(t, 55, total)
	require.Len(t, top, 3)
	for i, c := range top {
		assert.Equal(t, fmt.Sprint("k", i), c.Key)
		assert.EqualValues(t, 10-i, c.Denied)
		assert.Zero(t, c.Error)
		assert.EqualValues(t, i, c.Last.UnixMilli())
	}
}

// The bounds of the algorithm hold at several instants of a stream with a few frequent keys and
// many that occur once, such as that of a botnet that changes its keys.
func TestErrorIsBounded(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		rng := rand.New(rand.NewPCG(seed, 0))
		zipf := rand.NewZipf(rng, 1.1, 2, 1<<20)
		const limit = 64
		k, exact := newSpaceSaving(limit), map[string]uint64{}
		for i := range 50_000 {
			key := fmt.Sprint(zipf.Uint64())
			k.add(key, 1, time.Time{})
			exact[key]++
			if i%5000 == 0 {
				checkBounds(t, k, exact, limit)
			}
		}
		checkBounds(t, k, exact, limit)
	}
}

func checkBounds(t *testing.T, k *spaceSaving, exact map[string]uint64, limit int) {
	t.Helper()
	top, total := k.top(limit)
	require.LessOrEqual(t, len(k.heap), limit)
	require.Len(t, k.at, len(k.heap))
	seen := map[string]bool{}
	var sum uint64
	for i, c := range top {
		seen[c.Key] = true
		sum += c.Denied
		assert.LessOrEqual(t, exact[c.Key], c.Denied, c.Key)
		assert.GreaterOrEqual(t, exact[c.Key], c.Denied-c.Error, c.Key)
		assert.LessOrEqual(t, c.Error, total/uint64(limit), c.Key)
		if i > 0 {
			assert.LessOrEqual(t, c.Denied, top[i-1].Denied)
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
	k, exact := newSpaceSaving(2), map[string]uint64{}
	for _, key := range []string{"a", "b", "c", "c"} {
		k.add(key, 1, time.Time{})
		exact[key]++
	}
	k.heap[0].Denied = 0
	probe := &testing.T{}
	checkBounds(probe, k, exact, 2)
	assert.True(t, probe.Failed())
}

func TestConcurrentDenials(t *testing.T) {
	k := newSpaceSaving(8)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				k.add(fmt.Sprint((i+g)%20), 1, time.Time{})
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
		sum += c.Denied
	}
	assert.EqualValues(t, 16_000, sum)
}
