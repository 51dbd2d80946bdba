package weir

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/algorithm"
	"github.com/weirgo/weir/internal/slots"
)

func TestWindowsCoverTime(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	instants := []int64{math.MinInt64, math.MinInt64 + 1, -msec - 1, -msec, -1, 0, 1, msec - 1, msec,
		math.MaxInt64 - 1}
	for range 200 {
		instants = append(instants, rnd.Int64()-rnd.Int64())
	}
	for _, scale := range []int64{1, 2, 7, 1000, 60_000, 86_400_000, maxScale} {
		for _, now := range instants {
			w := windowAt(now, scale)
			length := big.NewInt(scale * msec)
			// Euclidean: rounds down
			number, into := new(big.Int).DivMod(big.NewInt(now), length, new(big.Int))
			name := fmt.Sprint(now, " in windows of ", scale)
			require.Equal(t, number.Int64(), w.number, name)
			require.True(t, w.holds(now), name)
			exact := new(big.Int).Sub(big.NewInt(now), into)
			require.Equal(t, saturated(exact), w.start, name)
			require.Equal(t, saturated(exact.Add(exact, length)), w.end, name)
			require.Equal(t, w.end, algorithm.WindowStart(w.number+1, scale), name)
			if w.start > math.MinInt64 {
				require.Equal(t, w.start, algorithm.WindowStart(w.number, scale), name)
				require.False(t, w.holds(w.start-1), name)
			}
			if w.end < math.MaxInt64 {
				require.False(t, w.holds(w.end), name)
				require.LessOrEqual(t, w.stamp(w.end-1), uint64(1<<slots.CountBits-1), name)
			}
		}
	}
}

func saturated(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// A stamp has 48 bits: it resolves a nanosecond in windows of up to three days, and 128 ns in a
// year.
func TestStampsAreFine(t *testing.T) {
	for scale, unit := range map[int64]uint{1: 0, 281_474_976: 0, 281_474_977: 1, maxScale: 7} {
		assert.Equal(t, unit, stampShift(scale), "scale %d", scale)
		w := windowAt(0, scale)
		assert.Equal(t, uint64(5), w.stamp(5<<unit))
		assert.Equal(t, uint64(4), w.stamp(5<<unit-1))
	}
	assert.EqualValues(t, msec>>16, windowAt(0, 1).touchEvery)
	assert.EqualValues(t, 1000*msec>>16, windowAt(0, 1000).touchEvery)
	assert.EqualValues(t, 1<<24, windowAt(0, 86_400_000).touchEvery)
	assert.EqualValues(t, 1<<17, windowAt(0, maxScale).touchEvery)
}

// Decisions reuse the latest window. A cache of windows that is too small for the scales in use
// grows until it suffices or reaches its maximum size.
func TestWindowsAreKept(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	made := l.window(0, 1000)
	assert.Same(t, made, l.window(0, 1000))
	assert.Same(t, made, l.window(1000*msec-1, 1000))
	assert.Same(t, made, l.windows.table.Load().place(1000, 0).Load())
	next := l.window(1000*msec, 1000)
	assert.NotSame(t, made, next)
	assert.Same(t, next, l.windows.table.Load().place(1000, 0).Load())
	assert.Equal(t, clock.now().Add(2e9), next.expires)

	for _, scales := range []int64{40, 200, 1000} {
		for range 20 {
			for s := range scales {
				l.window(0, 60_000+s)
			}
		}
		again := 0
		for s := range scales {
			if w := l.window(0, 60_000+s); w != l.window(0, 60_000+s) {
				again++
			}
		}
		assert.Zero(t, again, "of %d scales, these are made for each call", scales)
	}
	for s := range int64(20_000) {
		l.window(0, 60_000+s)
	}
	assert.Len(t, *l.windows.table.Load(), maxWindows)
}

// The place of a window that has ended is reused for another scale; that of a current window is
// not.
func TestRunningWindowsKeepTheirPlaces(t *testing.T) {
	l := new(Limiter)
	ws := &l.windows
	ws.table.Store(newWindowTable(probes))
	for s := range int64(probes) {
		ws.store(windowAt(0, 1000+s), 0)
	}
	ws.store(windowAt(0, 5000), 0)
	assert.Len(t, *ws.table.Load(), 2*probes, "a fifth running one makes the table grow")

	ws.table.Store(newWindowTable(probes))
	var stored []*window
	for s := range int64(probes) {
		stored = append(stored, windowAt(0, 1000+s))
		ws.store(stored[s], 0)
	}
	now := 1000 * msec // the first window has ended
	other := windowAt(now, 5000)
	ws.store(other, now)
	assert.Len(t, *ws.table.Load(), probes)
	assert.Same(t, other, l.window(now, 5000))
	for s := range int64(probes - 1) {
		assert.Same(t, stored[s+1], l.window(now, 1001+s))
	}
	assert.NotSame(t, stored[0], l.window(now-1, 1000))
}

// After the last representable instant the clock stands still, and counts remain.
func TestNothingExpiresAfterTheLastInstant(t *testing.T) {
	l, err := New(Config{Timeout: 1,
		Now: func() time.Time { return time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }})
	require.NoError(t, err)
	defer l.Close()
	tiers, err := l.Tiers(Tier{1, time.Second})
	require.NoError(t, err)
	for name, s := range map[string]Strategy{"log": l.SlidingLog(), "queue": l.LeakyBucket(0),
		"tiers": tiers} {
		l.Sweep() // there are no states
		r := &Request{Key: name, Limit: 1, Duration: 10 * time.Millisecond}
		for i := range 3 {
			res, err := s.(Peeker).Peek(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, i == 0, res.Allowed(), name)
			if i == 0 {
				require.NoError(t, s.(Charger).Charge(t.Context(), r))
			}
			l.Sweep()
		}
	}
	for i := range 3 {
		res, err := l.CheckRate("id", 1000, 1)
		require.NoError(t, err)
		require.Equal(t, i == 0, res.Allowed())
		l.Sweep()
	}
}
