package weir

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refunded hit leaves the log: otherwise a caller who is refunded each time grows it without a bound.
func TestRefundedHitsLeaveTheLog(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	s := l.SlidingLog()
	r := &Request{Key: "id", Limit: 3, Duration: time.Hour}
	random := rand.New(rand.NewPCG(7, 8))
	var held []*Result
	for range 5000 {
		clock.ns.Add(random.Int64N(2))
		if i := random.IntN(4); i < len(held) {
			require.NoError(t, s.Refund(t.Context(), r, held[i]))
			held = append(held[:i], held[i+1:]...)
			continue
		}
		res, err := s.Run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, len(held) < 3, res.Allowed())
		if res.Allowed() {
			held = append(held, res)
		}
		entries, err := s.Entries(t.Context(), r)
		require.NoError(t, err)
		require.Len(t, entries, len(held))
	}
	assert.Less(t, l.capacity.bytes.Load(), int64(500))
}

// What logs hold is bounded: over the bound growth fails with ErrFull, also for a known caller, and as soon as hits are
// over it goes on.
func TestLogsAreBoundedInBytes(t *testing.T) {
	for _, meta := range []string{"", strings.Repeat("m", 300)} {
		l, clock := newTestLimiter(t, Config{MaxBuckets: 100})
		s := l.SlidingLog()
		bound := l.capacity.maxBytes
		require.EqualValues(t, freeBytes+100*bytesPerBucket, bound)
		hits := 0
		for full := 0; full < 50; {
			r := &Request{Key: strconv.Itoa(hits % 50), Limit: 1 << 40, Duration: time.Second, Meta: meta}
			_, err := s.Run(t.Context(), r)
			require.LessOrEqual(t, l.capacity.bytes.Load(), bound)
			if err == nil {
				hits++
				continue
			}
			require.ErrorIs(t, err, ErrFull)
			require.ErrorIs(t, s.Charge(t.Context(), r), ErrFull)
			full++
		}
		require.Greater(t, hits, 1000)
		require.EqualValues(t, hits, l.Stats().Allowed, "an error counts nothing")
		clock.setMs(1000)
		r := &Request{Key: "another", Limit: 1 << 40, Duration: time.Second}
		_, err := s.Run(t.Context(), r)
		require.NoError(t, err, "everything is over")
		clock.setMs(100_000)
		l.Sweep()
		assert.Zero(t, l.capacity.bytes.Load())
		assert.Zero(t, l.Stats().Buckets)
	}
}

func TestPeekKeepsNoStateAlive(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1})
	tiers, err := l.Tiers(Tier{5, time.Second})
	require.NoError(t, err)
	for name, s := range map[string]Strategy{
		"log": l.SlidingLog(), "tiers": tiers, "queue": l.LeakyBucket(0), "window": l.SlidingWindow(), "tokens": l.TokenBucket(0),
	} {
		clock.setMs(0)
		r := &Request{Key: name, Limit: 5, Duration: time.Second}
		_, err := s.Run(t.Context(), r)
		require.NoError(t, err)
		for ms := range int64(30) {
			clock.ns.Store(ms*100*msec + 1)
			_, err := s.(Peeker).Peek(t.Context(), r)
			require.NoError(t, err)
		}
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}
