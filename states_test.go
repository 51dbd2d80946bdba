package weir

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weirgo/weir/internal/core/states"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockedStrategies returns the strategies with states of variable size. In each of them a hit
// counts for 10 ms.
func lockedStrategies(t testing.TB, l *Limiter) map[string]Strategy {
	tiers := MustTiers(t, l, Tier{100, 5 * time.Millisecond}, Tier{1000, 10 * time.Millisecond})
	return map[string]Strategy{"SlidingLog": l.SlidingLog(), "LeakyBucket": l.LeakyBucket(0),
		"Tiers": tiers}
}

func hitOf(key string) *Request {
	return &Request{Key: key, Limit: 1, Duration: 10 * time.Millisecond}
}

func TestStatesAreSweptWhenTheTimeoutHasPassed(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			start := clock.ns.Load() / msec
			MustRun(t, s, hitOf("a"))
			clock.setMs(start + 2)
			_, err := s.Run(t.Context(), hitOf("a")) // a denial does not extend the state's life
			require.NoError(t, err)
			clock.setMs(start + 16)
			assert.Zero(t, l.Sweep(), "it is kept for 7 ms after it has expired")
			clock.setMs(start + 17)
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
			assert.Zero(t, l.room.Bytes.Load())
			clock.setMs(start + 1000)
		})
	}
}

func TestSweepKeepsStatesThatAreUsedAgain(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				MustRun(t, s, hitOf("early"))
				clock.ns.Add(5 * msec)
				MustRun(t, s, hitOf("late"))
				clock.ns.Add(6 * msec)
				assert.Equal(t, 1, l.Sweep(), "only the early one has expired")
				clock.ns.Add(4 * msec)
			}
			clock.ns.Add(5 * msec)
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
		})
	}
}

func TestErrFullEnds(t *testing.T) {
	for name := range lockedStrategies(t, newLimiter(t)) {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{MaxBuckets: 2, SweepEvery: time.Hour})
			s := lockedStrategies(t, l)[name]
			for round := range 3 {
				run := func(key string) error {
					_, err := s.Run(t.Context(), hitOf(fmt.Sprint(round, key)))
					return err
				}
				require.NoError(t, run("a"))
				require.NoError(t, run("b"))
				require.ErrorIs(t, run("c"), ErrFull)
				require.NoError(t, run("a"), "a known caller is decided")
				clock.ns.Add(10*msec - 1)
				require.ErrorIs(t, run("c"), ErrFull)
				clock.ns.Add(1)
				require.NoError(t, run("c"), "the first bucket has expired")
				clock.ns.Add(20 * msec)
			}
		})
	}
}

func newLimiter(t testing.TB) *Limiter {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	return l
}

// A state emptied by a refund is also kept for Timeout, so that its time does not go back.
func TestEmptiedStatesAreKept(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	strategies := lockedStrategies(t, l)
	strategies["TokenBucket"] = l.TokenBucket(0)
	for name, s := range strategies {
		clock.setMs(1000)
		r := hitOf(name)
		res := MustRun(t, s, r)
		require.NoError(t, ops.Refund(t.Context(), s, r, res))
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		clock.setMs(1006)
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		clock.setMs(1020)
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}

// Entries copy the strings of requests: six bytes of a header must not keep the whole header in
// memory.
func TestStatesCopyTheirStrings(t *testing.T) {
	l := newLimiter(t)
	header := strings.Repeat("x", 8<<10)
	for name, s := range lockedStrategies(t, l) {
		for _, n := range []int{1, 32, 33, 500} {
			_, err := s.Run(t.Context(), &Request{Key: header[:n], Limit: 1, Duration: time.Second})
			require.NoError(t, err, "%s, %d bytes", name, n)
		}
	}
	keys := slices.Collect(l.logs.Keys)
	keys = slices.AppendSeq(slices.AppendSeq(keys, l.queues.Keys), l.slices.Keys)
	require.Len(t, keys, 12)
	for _, k := range keys {
		assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(k.ID), "%d bytes", len(k.ID))
	}
	r := &Request{Key: "m", Limit: 1, Duration: time.Second, Meta: header[:6]}
	MustRun(t, l.SlidingLog(), r)
	entries, err := ops.Hits(t.Context(), l.SlidingLog(), r)
	require.NoError(t, err)
	meta := entries[0].Meta
	assert.Equal(t, "xxxxxx", meta)
	assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(meta))
}

// Seeding a state with its own count neither extends its life nor lets it grow.
func TestSeedOfAnEqualCountExtendsNothing(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			res := MustRun(t, s, hitOf("id"))
			bytes := l.room.Bytes.Load()
			if name != "LeakyBucket" { // there the seed is more than what remains later
				clock.ns.Add(5 * msec)
			}
			seed := &Result{State: Allow, TotalRequests: res.TotalRequests,
				ExpiresAt: res.ExpiresAt.Add(time.Second)}
			require.NoError(t, ops.Seed(t.Context(), s, hitOf("id"), seed))
			assert.Equal(t, bytes, l.room.Bytes.Load())
			clock.ns.Store(res.ExpiresAt.UnixNano() + 5*msec + 1)
			if name != "Tiers" { // its Result may describe the shorter tier
				clock.ns.Store(res.ExpiresAt.UnixNano() + 1)
			}
			assert.Equal(t, 1, l.Sweep())
		})
		clock.ns.Add(1000*msec - clock.ns.Load()%msec)
	}
}

// bytesOf returns how many bytes the states of a table hold.
func bytesOf[S states.State](t *states.Table[S]) (n int64) {
	for k := range t.Keys {
		h, _ := t.Lock(k, false)
		n += h.State.Bytes()
		h.Unlock(states.Seen)
	}
	return n
}
