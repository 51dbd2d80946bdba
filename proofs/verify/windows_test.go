package verify

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

const year = 365 * 24 * 60 * 60 * 1000 // ms

// Instants and scales of any size belong to the window that arithmetic without overflow gives.
func TestWindowArithmeticIsTotal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 6))
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 62, -1_000_000, -1, 0, 1, 1_000_000,
		1 << 62,
		math.MaxInt64 - 1, math.MaxInt64}
	var now int64
	l := newLimiter(t, weir.Config{Now: func() time.Time {
		return time.Unix(0, now)
	}, SweepEvery: still})
	for i := range slow.N(20_000, 200_000, 100_000_000) {
		now = int64(rnd.Uint64())
		scale := 1 + rnd.Int64N(year)>>rnd.IntN(36)
		if i%4 == 0 {
			now = edges[rnd.IntN(len(edges))]
		}
		res, err := l.CheckRate("id", scale, 1)
		if err != nil || !res.Allowed() || res.TotalRequests != 1 {
			t.Fatalf("at %d in %d ms: %+v, %v", now, scale, res, err)
		}
		b, err := l.Inspect("id", scale)
		if err != nil || b.Number != numberOf(now, scale) || !b.Ends.Equal(res.ExpiresAt) ||
			b.Count != 1 {
			t.Fatalf("at %d in %d ms: %+v, %v; want number %d", now, scale, b, err, numberOf(now, scale))
		}
		left := res.ExpiresAt.Sub(time.Unix(0, now))
		last := res.ExpiresAt.UnixNano() == math.MaxInt64 // the end of representable time
		if left <= 0 && !last || left > time.Duration(scale)*time.Millisecond {
			t.Fatalf("at %d in %d ms: %v left", now, scale, left)
		}
		if err := l.Reset("id", scale); err != nil {
			t.Fatal(err)
		}
	}
	require.Zero(t, l.Stats().Buckets)
}

// numberOf returns floor(now/scale) without overflow.
func numberOf(now, scale int64) int64 {
	if now > math.MinInt64/2 && now < math.MaxInt64/2 {
		return floor(now, scale*msec)
	}
	n := new(big.Int).Mul(big.NewInt(scale), big.NewInt(msec))
	return n.Div(big.NewInt(now), n).Int64()
}

// most returns the largest number of instants in any span of the given length.
func most(instants []int64, span int64) (n int) {
	from := 0
	for to, at := range instants {
		for instants[from] <= at-span {
			from++
		}
		n = max(n, to-from+1)
	}
	return n
}

func TestAtMostTwiceTheLimitInAnySpan(t *testing.T) {
	const scale, limit = 20, 5
	var now int64
	l := newLimiter(t, weir.Config{Now: func() time.Time {
		return at(now)
	}, Timeout: 1, SweepEvery: still})
	rnd := rand.New(rand.NewPCG(8, 8))
	worst := 0
	runs := slow.N(5_000, 50_000, 1_000_000)
	if slow.Race {
		runs /= 5 // nothing runs concurrently
	}
	for run := range runs {
		id, pause := fmt.Sprint(run), 1+rnd.Int64N(2*scale)
		var admitted []int64
		for range 30 {
			if rnd.IntN(3) == 0 {
				now += rnd.Int64N(pause)
			}
			res, err := l.CheckRate(id, scale, limit)
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed() {
				admitted = append(admitted, now)
			}
		}
		worst = max(worst, most(admitted, scale))
		if run%1000 == 0 {
			l.Sweep()
		}
	}
	t.Logf("at most %d in a span of one scale, at limit %d", worst, limit)
	assert.LessOrEqual(t, worst, 2*limit)

	now = (now/scale+2)*scale - 1 // the last millisecond of a window
	var admitted []int64
	for range 3 * limit {
		for range 2 {
			res, err := l.CheckRate("adversary", scale, limit)
			require.NoError(t, err)
			if res.Allowed() {
				admitted = append(admitted, now)
			}
		}
		if len(admitted) == limit {
			now++
		}
	}
	assert.Equal(t, 2*limit, most(admitted, scale), "twice the limit is reached")
}

func TestDenialsDelayNoAdmission(t *testing.T) {
	const scale, limit = 1000, 3
	now := int64(200)
	l := newLimiter(t, weir.Config{Now: func() time.Time { return at(now) }, SweepEvery: still})
	for range limit {
		_, err := l.CheckRate("id", scale, limit)
		require.NoError(t, err)
	}
	denials := int64(slow.N(100_000, 1_000_000, 10_000_000))
	for i := range denials {
		now = 200 + i*800/denials // up to the end of the window
		res, err := l.CheckRate("id", scale, limit)
		if err != nil || res.Allowed() || res.TotalRequests != limit ||
			res.ExpiresAt.UnixMilli() != scale {
			t.Fatalf("denial %d: %+v, %v", i, res, err)
		}
	}
	now = scale
	res, err := l.CheckRate("id", scale, limit)
	require.NoError(t, err)
	assert.True(t, res.Allowed(), "at the start of the next window")
	assert.EqualValues(t, 1, res.TotalRequests)

	// A counter at its maximum stays there.
	const maxCount = 1<<48 - 2
	r := &weir.Request{Key: "id", Limit: math.MaxUint64, Duration: time.Second, Cost: maxCount - 2}
	require.NoError(t, ops.Charge(t.Context(), l.FixedWindow(), r))
	r.Cost = 5
	for range 3 {
		res, err := l.FixedWindow().Run(t.Context(), r)
		require.NoError(t, err)
		assert.False(t, res.Allowed())
		assert.Equal(t, uint64(maxCount-1), res.TotalRequests)
	}
}

func TestDenialTakesNothing(t *testing.T) {
	for _, s := range subjects() {
		if s.name == "LeakyBucket" || s.name == "TokenBucket of 2" || s.name == "Tiers" {
			continue // these do not admit ten at once; the models cover them
		}
		t.Run(s.name, func(t *testing.T) {
			now := int64(0)
			clock := func() time.Time { return at(now) }
			strategy := s.make(newLimiter(t, weir.Config{Now: clock, SweepEvery: still}), clock)
			for i, row := range []struct {
				cost    uint64
				allowed bool
				total   uint64
			}{{8, true, 8}, {5, false, 8}, {11, false, 8}, {2, true, 10}, {1, false, 10}} {
				res, err := strategy.Run(t.Context(), &weir.Request{Key: "id", Limit: 10, Duration: time.Second,
					Cost: row.cost})
				require.NoError(t, err)
				assert.Equal(t, row.allowed, res.Allowed(), "row %d", i)
				assert.Equal(t, row.total, res.TotalRequests, "row %d", i)
			}
		})
	}
}

// ExpiresAt of a denial is the first instant at which the same request is admitted: a nanosecond
// earlier it is denied.
func TestRetryInstantIsExact(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(15, 15))
			var ns atomic.Int64
			ns.Store(-500 * msec)
			clock := func() time.Time { return time.Unix(0, ns.Load()) }
			l := newLimiter(t, weir.Config{Now: clock, Timeout: 1})
			strategy := s.make(l, clock)
			denials := slow.N(200, 1000, 100_000)
			for denied := 0; denied < denials; {
				if rnd.IntN(4) == 0 {
					ns.Add(rnd.Int64N(4 * msec))
				}
				limit := []int64{3, 5, 7}[rnd.IntN(3)]
				a := ask{fmt.Sprint("k", rnd.IntN(3), "/", limit), 10, limit, 1 + rnd.Int64N(3)}
				res, err := strategy.Run(t.Context(), a.request())
				require.NoError(t, err)
				if res.Allowed() || res.ExpiresAt.IsZero() {
					continue
				}
				denied++
				before := ns.Load()
				require.Greater(t, res.ExpiresAt.UnixNano(), before)
				peek := func(at int64) bool {
					ns.Store(at)
					res, err := ops.Peek(t.Context(), strategy, a.request())
					require.NoError(t, err)
					return res.Allowed()
				}
				told := res.ExpiresAt.UnixNano()
				for _, at := range []int64{told - 1, before + rnd.Int64N(told-before), told - (told-before)/2} {
					if at < told && peek(at) {
						t.Fatalf("%+v, denied at %d until %d, is admitted at %d", a, before, told, at)
					}
				}
				if !peek(told) {
					t.Fatalf("%+v, denied at %d until %d, is denied then", a, before, told)
				}
				if rnd.IntN(2) == 0 {
					ns.Store(max(before, told-1))
				}
			}
		})
	}
}

func TestKeysAreInjective(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	parts := []string{"", "a", "b", ":", "1", "1:", "2:a", "-", "|", "/", "_", "\x00", "\xff", "{}",
		"a:b", "b:c", "é"}
	seen := make(map[string][]string)
	tries := slow.N(40_000, 500_000, 10_000_000)
	for range tries {
		list := make([]string, rnd.IntN(5))
		for i := range list {
			list[i] = parts[rnd.IntN(len(parts))]
		}
		key := weir.JoinKey(list...)
		if other, ok := seen[key]; ok && !slices.Equal(other, list) {
			t.Fatalf("%q and %q are both %q", list, other, key)
		}
		seen[key] = list
	}
	require.Greater(t, len(seen), min(tries/20, 50_000))
	require.NotEqual(t, weir.JoinKey("a", "b:c"), weir.JoinKey("a:b", "c"))

	// No two of (id, scale, window) share a counter: each is admitted once, whatever the others did.
	now := int64(0)
	l := newLimiter(t, weir.Config{Now: func() time.Time { return at(now) }, SweepEvery: still})
	ids := []string{"a", "b", "aa", "a\x00", "a1", "1a"}
	for now = -30; now < 30; now += 10 {
		for _, id := range ids {
			for scale := int64(1); scale <= 10; scale++ {
				res, err := l.CheckRate(id, scale, 1)
				require.NoError(t, err)
				first := floor(now, scale) != floor(now-10, scale)
				require.Equal(t, first || now == -30, res.Allowed(), "%q in %d ms at %d", id, scale, now)
			}
		}
	}
}
