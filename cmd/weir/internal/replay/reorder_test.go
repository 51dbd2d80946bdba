package replay

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type came struct {
	ns     int64
	caller uint32
}

// reordered runs requests, whole seconds if coarse, through a reorder that may hold max.
func reordered(t *testing.T, window time.Duration, max int, coarse bool, in []came) ([]came, *reorder) {
	t.Helper()
	var out []came
	r := newReorder(window, func(ns int64, caller uint32) error {
		out = append(out, came{ns, caller})
		return nil
	})
	r.max = max
	for _, c := range in {
		require.NoError(t, r.add(c.ns, coarse, c.caller))
		require.LessOrEqual(t, r.held, max, "more is held than may be")
	}
	require.NoError(t, r.close())
	require.Len(t, out, len(in), "every request comes out once")
	require.True(t, slices.IsSortedFunc(out, func(a, b came) int { return cmp.Compare(a.ns, b.ns) }), "time runs back")
	return out, r
}

// A log that is out of order by less than the window comes out sorted, requests of one instant in the order of the log.
func TestReorderSorts(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		start := rnd.Int64N(4e18) - 2e18 // before and after 1970
		var in []came
		at := start
		for i := range 2000 {
			at += rnd.Int64N(3e8)
			if rnd.IntN(100) == 0 {
				at += rnd.Int64N(1e13) // a quiet hour or two
			}
			in = append(in, came{at - rnd.Int64N(9e9)/1e6*1e6, uint32(i)})
		}
		want := slices.Clone(in)
		slices.SortStableFunc(want, func(a, b came) int { return cmp.Compare(a.ns, b.ns) })
		got, r := reordered(t, 10*time.Second, maxHeld, false, in)
		require.Equal(t, want, got, "seed %d", seed)
		require.Zero(t, r.late)
	}
}

func TestReorderSpreadsASecond(t *testing.T) {
	const s = int64(1e9)
	got, _ := reordered(t, time.Minute, maxHeld, true, []came{{5 * s, 0}, {4 * s, 1}, {5 * s, 2}, {5 * s, 3}, {5 * s, 4}})
	assert.Equal(t, []came{{4 * s, 1}, {5 * s, 0}, {5*s + s/4, 2}, {5*s + s/2, 3}, {5*s + 3*s/4, 4}}, got)
}

func TestReorderCountsTheLate(t *testing.T) {
	const s = int64(1e9)
	got, r := reordered(t, 2*time.Second, maxHeld, false, []came{
		{100 * s, 0}, {101 * s, 1}, {104 * s, 2}, // hands out second 101 and before
		{101*s + 5, 3}, // before the window, but nothing after it was handed out
		{99 * s, 4},    // late by 5 s
		{50 * s, 5},    // late by 54 s
		{102 * s, 6},   // in time
	})
	assert.Equal(t, []came{{100 * s, 0}, {101 * s, 1}, {101*s + 5, 3}, {101*s + 5, 4}, {101*s + 5, 5}, {102 * s, 6}, {104 * s, 2}}, got)
	assert.EqualValues(t, 2, r.late)
	assert.EqualValues(t, 54, r.lateBy)
}

// Without a window only the requests of one second are put in order.
func TestReorderWithoutWindow(t *testing.T) {
	const s = int64(1e9)
	got, r := reordered(t, 0, maxHeld, false, []came{{10*s + 7, 0}, {10*s + 3, 1}, {11 * s, 2}, {10*s + 9, 3}, {10 * s, 4}})
	assert.Equal(t, []came{{10*s + 3, 1}, {10*s + 7, 0}, {10*s + 9, 3}, {10*s + 9, 4}, {11 * s, 2}}, got)
	assert.EqualValues(t, 1, r.late)
}

// A flood must not take more memory than is allowed, even if it is all in one second, nor lose a request.
func TestReorderIsBounded(t *testing.T) {
	var in []came
	for i := range 10_000 {
		in = append(in, came{int64(i) / 4000 * 1e9, uint32(i)})
	}
	got, r := reordered(t, time.Minute, 100, true, in)
	for i, c := range got {
		require.Equal(t, in[i].caller, c.caller)
		require.Equal(t, in[i].ns/1e9, c.ns/1e9, "a request left its second")
	}
	assert.Zero(t, r.late)
}
