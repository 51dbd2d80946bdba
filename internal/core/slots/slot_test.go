package slots

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/ids"
)

// idLengths are the lengths at which the storage of an ID changes.
var idLengths = []int{1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 21, ids.Inline, ids.Inline + 1, 24, 25, 31,
	32, 33, ids.Head + partBytes - 1, ids.Head + partBytes, ids.Head + partBytes + 1,
	ids.Head + 2*partBytes, 255, 256, 1000, bounds.MaxKey}

func testID(n int) string {
	id := make([]byte, n)
	for i := range id {
		id[i] = byte(i*37 + n)
	}
	return string(id)
}

func TestSlotHoldsTheKeyItWasGiven(t *testing.T) {
	sh := newShard(true)
	const scale, number = 1000, 7
	p := PeriodOf(0, scale, number)
	for _, n := range idLengths {
		id := testID(n)
		insert(sh, id, &p)
		packed := sh.hasher.Pack(id)
		x := sh.index.Load()
		s, _, _ := x.Find(packed, id, &p)
		require.NotNil(t, s, "%d bytes", n)
		assert.Equal(t, id, string(x.appendID(nil, s)), "%d bytes", n)
		k, ms, window := s.Period()
		assert.Equal(t, []int64{0, scale, number}, []int64{int64(k), ms, window}, "%d bytes", n)

		// With equal hashes, keys are compared in full.
		find := func(other string) *Slot {
			with := sh.hasher.Pack(other)
			with.Hash = packed.Hash
			s, _, _ := x.Find(with, other, &p)
			return s
		}
		for i := range n {
			other := []byte(id)
			other[i]++
			require.Nil(t, find(string(other)), "%d bytes, another byte %d", n, i)
		}
		for _, other := range []string{id[1:], id[:n-1], id + "x", id + "\x00", "\x00" + id} {
			if other != "" {
				assert.Nil(t, find(other), "%d bytes and %q", n, other)
			}
		}
		for _, q := range []Period{
			PeriodOf(0, scale, number+1), PeriodOf(0, scale+1, number), PeriodOf(1, scale, number),
			PeriodOf(0, scale+1<<16, number), PeriodOf(0, scale+1<<32, number),
		} {
			q.Salt = p.Salt
			s, _, _ := x.Find(packed, id, &q)
			assert.Nil(t, s, "%d bytes and another period", n)
		}
	}
	sh.Lock()
	defer sh.Unlock()
	seen := map[string]bool{}
	for _, s := range sh.All() {
		id := string(sh.AppendID(nil, s))
		require.False(t, seen[id])
		seen[id] = true
		assert.Equal(t, testID(len(id)), id)
	}
	assert.Len(t, seen, len(idLengths))
}

// A period keeps every valid scale and all window numbers possible in it.
func TestPeriodIsPackedWithoutLoss(t *testing.T) {
	for _, ms := range []int64{1, 2, 1000, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 32, bounds.MaxScale} {
		first, _, _ := algorithm.Window(ms, math.MinInt64)
		last, _, _ := algorithm.Window(ms, math.MaxInt64)
		for _, k := range []Kind{0, 1, 2, 3} {
			for _, number := range []int64{first - 1, first, -1, 0, 1, last, last + 1} {
				p := PeriodOf(k, ms, number)
				require.Zero(t, p.mid&countMask, "the bits of the ID")
				require.Zero(t, p.high&lenMask, "the bits of the length")
				require.Zero(t, p.high&^keyMask, "the bits of the stamp")
				s := Slot{lowWord: p.low, restWord: p.mid | countMask, tailWord: p.high | lenMask | 1<<63}
				gotKind, gotMs, gotNumber := s.Period()
				assert.Equal(t, k, gotKind)
				assert.Equal(t, ms, gotMs)
				assert.Equal(t, number, gotNumber)
			}
		}
	}
}

// These scales have periods that differ in each word.
var salted = []int64{1000, 60_000, 1000 + 1<<16, 3_600_000, 86_400_000, bounds.MaxScale}

// In a shard the windows of one ID differ only by the salt.
func TestSaltsOfWindowsDiffer(t *testing.T) {
	seen := make(map[uint64]int64)
	for _, k := range []Kind{0, 1, 2, 3} {
		for _, scale := range salted {
			for number := int64(-5000); number < 5000; number++ {
				s := PeriodOf(k, scale, number).Salt
				if other, taken := seen[s]; taken {
					t.Fatalf("window %d of scale %d has the salt of %d", number, scale, other)
				}
				seen[s] = number
			}
		}
	}
}

// The buckets of one ID in consecutive windows must not share a position of the index.
func TestSaltSpreadsPositions(t *testing.T) {
	const places, n = 1 << 10, 1 << 15
	for _, scale := range salted {
		var high, low [places]int
		for number := range int64(n) {
			at := uint32(PeriodOf(0, scale, number+29_919_571).Salt)
			high[at>>22]++
			low[at%places]++
		}
		for i := range places {
			require.InDelta(t, 32, high[i], 32, "place %d, scale %d", i, scale)
			require.InDelta(t, 32, low[i], 32, "tag %d, scale %d", i, scale)
		}
	}
}
