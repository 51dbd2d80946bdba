package windows

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/slots"
)

const millisecond = int64(time.Millisecond)

func TestWindowsCoverTime(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	instants := []int64{math.MinInt64, math.MinInt64 + 1, -millisecond - 1, -millisecond, -1, 0, 1, millisecond - 1, millisecond,
		math.MaxInt64 - 1}
	for range 200 {
		instants = append(instants, rnd.Int64()-rnd.Int64())
	}
	for _, scale := range []int64{1, 2, 7, 1000, 60_000, 86_400_000, bounds.MaxScale} {
		for _, now := range instants {
			w := At(now, scale)
			length := big.NewInt(scale * millisecond)
			// Euclidean: rounds down
			number, into := new(big.Int).DivMod(big.NewInt(now), length, new(big.Int))
			name := fmt.Sprint(now, " in windows of ", scale)
			require.Equal(t, number.Int64(), w.Number, name)
			require.True(t, w.Holds(now), name)
			exact := new(big.Int).Sub(big.NewInt(now), into)
			require.Equal(t, saturated(exact), w.Start, name)
			require.Equal(t, saturated(exact.Add(exact, length)), w.End, name)
			require.Equal(t, w.End, algorithm.WindowStart(w.Number+1, scale), name)
			if w.Start > math.MinInt64 {
				require.Equal(t, w.Start, algorithm.WindowStart(w.Number, scale), name)
				require.False(t, w.Holds(w.Start-1), name)
			}
			if w.End < math.MaxInt64 {
				require.False(t, w.Holds(w.End), name)
				require.LessOrEqual(t, w.Stamp(w.End-1), uint64(1<<slots.CountBits-1), name)
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
	for scale, unit := range map[int64]uint{1: 0, 281_474_976: 0, 281_474_977: 1, bounds.MaxScale: 7} {
		assert.Equal(t, unit, StampShift(scale), "scale %d", scale)
		w := At(0, scale)
		assert.Equal(t, uint64(5), w.Stamp(5<<unit))
		assert.Equal(t, uint64(4), w.Stamp(5<<unit-1))
	}
	assert.EqualValues(t, millisecond>>16, At(0, 1).TouchEvery)
	assert.EqualValues(t, 1000*millisecond>>16, At(0, 1000).TouchEvery)
	assert.EqualValues(t, 1<<24, At(0, 86_400_000).TouchEvery)
	assert.EqualValues(t, 1<<17, At(0, bounds.MaxScale).TouchEvery)
}

// Decisions reuse the latest window. A cache of windows that is too small for the scales in use
// grows until it suffices or reaches its maximum size.
func TestWindowsAreKept(t *testing.T) {
	var ws Windows
	start := time.Unix(0, 0).UTC()
	c := clock.New(func() time.Time { return start })
	ws.Init(&c)
	made := ws.Running(0, 1000)
	assert.Same(t, made, ws.Running(0, 1000))
	assert.Same(t, made, ws.Running(1000*millisecond-1, 1000))
	assert.Same(t, made, ws.table.Load().place(1000, 0).Load())
	next := ws.Running(1000*millisecond, 1000)
	assert.NotSame(t, made, next)
	assert.Same(t, next, ws.table.Load().place(1000, 0).Load())
	assert.Equal(t, start.Add(2e9), next.Expires)

	for _, scales := range []int64{40, 200, 1000} {
		for range 20 {
			for s := range scales {
				ws.Running(0, 60_000+s)
			}
		}
		again := 0
		for s := range scales {
			if w := ws.Running(0, 60_000+s); w != ws.Running(0, 60_000+s) {
				again++
			}
		}
		assert.Zero(t, again, "of %d scales, these are made for each call", scales)
	}
	for s := range int64(20_000) {
		ws.Running(0, 60_000+s)
	}
	assert.Len(t, *ws.table.Load(), maxWindows)
}

// The place of a window that has ended is reused for another scale; that of a current window is
// not.
func TestRunningWindowsKeepTheirPlaces(t *testing.T) {
	var ws Windows
	c := clock.New(nil)
	ws.Init(&c)
	ws.table.Store(newWindowTable(probes))
	for s := range int64(probes) {
		ws.store(At(0, 1000+s), 0)
	}
	ws.store(At(0, 5000), 0)
	assert.Len(t, *ws.table.Load(), 2*probes, "a fifth running one makes the table grow")

	ws.table.Store(newWindowTable(probes))
	var stored []*Window
	for s := range int64(probes) {
		stored = append(stored, At(0, 1000+s))
		ws.store(stored[s], 0)
	}
	now := 1000 * millisecond // the first window has ended
	other := At(now, 5000)
	ws.store(other, now)
	assert.Len(t, *ws.table.Load(), probes)
	assert.Same(t, other, ws.Running(now, 5000))
	for s := range int64(probes - 1) {
		assert.Same(t, stored[s+1], ws.Running(now, 1001+s))
	}
	assert.NotSame(t, stored[0], ws.Running(now-1, 1000))
}

// A series that is found by its name is found by its number too, by whoever comes while it is made.
func TestASeriesThatIsKnownHasItsNumber(t *testing.T) {
	c := clock.New(nil)
	var ws Windows
	ws.Init(&c)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range MaxSeries {
				s, err := ws.Named(SeriesName{Name: strconv.Itoa(i)}, nil)
				if err != nil || ws.Numbered(s.Number) != s { // which panics if there is none
					t.Errorf("name %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	assert.Nil(t, ws.Numbered(0))
}
