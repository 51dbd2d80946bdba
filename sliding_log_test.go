package weir

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refunded hit leaves the log. Otherwise refunds would let it grow without bound.
func TestRefundedHitsLeaveTheLog(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	s := l.SlidingLog()
	r := &Request{Key: "id", Limit: 3, Duration: time.Hour}
	random := rand.New(rand.NewPCG(7, 8))
	var held []*Result
	for range 5000 {
		clock.ns.Add(random.Int64N(2))
		if i := random.IntN(4); i < len(held) {
			require.NoError(t, ops.Refund(t.Context(), s, r, held[i]))
			held = append(held[:i], held[i+1:]...)
			continue
		}
		res := MustRun(t, s, r)
		require.Equal(t, len(held) < 3, res.Allowed())
		if res.Allowed() {
			held = append(held, res)
		}
		entries, err := ops.Hits(t.Context(), s, r)
		require.NoError(t, err)
		require.Len(t, entries, len(held))
	}
	assert.Less(t, l.room.Bytes.Load(), int64(500))
}

// The memory of logs is bounded. At the bound growth fails with ErrFull, even for known callers,
// until hits expire.
func TestLogsAreBoundedInBytes(t *testing.T) {
	for _, meta := range []string{"", strings.Repeat("m", 300)} {
		l, clock := newTestLimiter(t, Config{MaxBuckets: 100})
		s := l.SlidingLog()
		bound := l.room.MaxBytes
		require.EqualValues(t, 1<<20+100*256, bound)
		hits := 0
		for full := 0; full < 50; {
			r := &Request{Key: strconv.Itoa(hits % 50), Limit: 1 << 40, Duration: time.Second, Meta: meta}
			_, err := s.Run(t.Context(), r)
			require.LessOrEqual(t, l.room.Bytes.Load(), bound)
			if hits%100 == 0 || err != nil {
				require.Equal(t, bytesOf(&l.logs), l.room.Bytes.Load())
			}
			if err == nil {
				hits++
				continue
			}
			require.ErrorIs(t, err, ErrFull)
			require.ErrorIs(t, ops.Charge(t.Context(), s, r), ErrFull)
			full++
		}
		require.Greater(t, hits, 1000)
		require.EqualValues(t, hits, l.Stats().Allowed, "an error counts nothing")
		buckets := l.Stats().Buckets
		_, err := s.Run(t.Context(), &Request{Key: "new", Limit: 1 << 40, Duration: time.Second,
			Meta: strings.Repeat("m", 1<<20)})
		require.ErrorIs(t, err, ErrFull, "a new caller")
		require.Equal(t, buckets, l.Stats().Buckets, "a denied caller has no bucket")
		clock.setMs(1000)
		r := &Request{Key: "another", Limit: 1 << 40, Duration: time.Second}
		res, err := s.Run(t.Context(), r)
		require.NoError(t, err, "everything is over")
		assert.Equal(t, bytesOf(&l.logs), l.room.Bytes.Load())
		require.NoError(t, ops.Refund(t.Context(), s, r, res))
		assert.Equal(t, bytesOf(&l.logs), l.room.Bytes.Load())
		clock.setMs(100_000)
		l.Sweep()
		assert.Zero(t, l.room.Bytes.Load())
		assert.Zero(t, l.Stats().Buckets)
	}
}

// Expired logs of one strategy make room for those of another.
func TestBytesAreReclaimedFromOtherStrategies(t *testing.T) {
	for name, run := range map[string]func(*Limiter, *Request) error{
		"Tiers": func(l *Limiter, r *Request) error {
			_, err := l.Tiers(Tier{1, time.Second}).Run(t.Context(), r)
			return err
		},
		"LeakyBucket": func(l *Limiter, r *Request) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := l.LeakyBucket(2)
			if _, err := s.Run(ctx, r); err != nil {
				return err
			}
			if err := ops.Charge(ctx, s, &Request{Key: r.Key, Limit: 1, Duration: time.Second}); err != nil {
				return err
			}
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := s.Run(ctx, r); err != context.Canceled { // waits
				return cmp.Or(err, errors.New("it did not wait"))
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{MaxBuckets: 100})
			s := l.SlidingLog()
			for err := error(nil); err == nil; {
				_, err = s.Run(t.Context(), &Request{Key: "a", Limit: 1 << 40, Duration: time.Second})
			}
			for err := error(nil); err == nil; {
				_, err = s.Run(t.Context(), &Request{Key: "b", Limit: 1 << 40, Duration: time.Second})
			}
			l.room.Bytes.Store(l.room.MaxBytes) // no byte is left for the ring to grow
			r := &Request{Key: "c", Limit: 1, Duration: time.Second}
			require.ErrorIs(t, run(l, r), ErrFull)
			clock.setMs(5000)
			require.NoError(t, run(l, r))
			require.Positive(t, l.Stats().Swept)
		})
	}
}

func TestPeekKeepsNoStateAlive(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1})
	tiers := MustTiers(t, l, Tier{5, time.Second})
	for name, s := range map[string]Strategy{
		"log": l.SlidingLog(), "tiers": tiers, "queue": l.LeakyBucket(0), "window": l.SlidingWindow(),
		"tokens": l.TokenBucket(0),
	} {
		clock.setMs(0)
		r := &Request{Key: name, Limit: 5, Duration: time.Second}
		MustRun(t, s, r)
		for ms := range int64(30) {
			clock.ns.Store(ms*100*msec + 1)
			MustPeek(t, s, r)
		}
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}

// After a partial refund the rest of a hit still counts.
func TestRefundInPartLeavesTheRest(t *testing.T) {
	l := newLimiter(t)
	s := l.SlidingLog()
	r := Request{Key: "id", Limit: 3, Duration: time.Second}
	cost3 := r
	cost3.Cost = 3
	res := MustRun(t, s, &cost3)
	require.NoError(t, ops.Refund(t.Context(), s, &r, res))
	entries, err := ops.Hits(t.Context(), s, &r)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.EqualValues(t, 2, entries[0].Cost)
	peeked := MustPeek(t, s, &r)
	assert.EqualValues(t, 3, peeked.TotalRequests)
}
