package weir

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// That a key has no bucket raises the horizon, so that no bucket is made at an earlier reading.
func TestAbsenceRaisesTheHorizon(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour})
	for name, s := range map[string]*slotStrategy{
		"fixed": &l.FixedWindow().slotStrategy, "tokens": &l.TokenBucket(0).slotStrategy,
	} {
		clock.setMs(1500)
		c, err := s.lock(name, 1000, noInstant, false)
		require.NoError(t, err)
		require.Nil(t, c.Slot)
		c.Unlock()
		key := s.period(1000)
		if s.kind == fixedKind {
			key = l.windows.Running(1500*msec, 1000).Fixed
		}
		_, err = s.table.lock(s.table.Pack(name), name, &key, &reading{now: 1200 * msec, horizon: noInstant},
			true)
		assert.ErrorIs(t, err, errEarlier, name)
	}
}

// A bucket whose slot has used its generations goes on in another slot, with all that it counts and
// the same identity, also with a long ID.
func TestBucketsOutliveTheirSlots(t *testing.T) {
	for _, id := range []string{"id", "an identifier of 58 bytes, which takes a slot for its tail."} {
		l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 10})
		s := l.Counter()
		r := &Request{Key: id, Limit: 2, Duration: time.Millisecond}
		MustRun(t, s, r)
		bucket := func() (*slots.Slot, slots.Identity) {
			c, err := s.lock(r.Key, r.Duration.Milliseconds(), noInstant, false)
			require.NoError(t, err)
			defer c.Unlock()
			return c.Slot, c.Identity()
		}
		first, identity := bucket()
		moved := 0
		for ms := int64(1); moved < slow.N(1, 2, 2); ms++ {
			if ms >= 1<<18 {
				t.Fatal("the bucket still has its slot")
			}
			clock.setMs(ms)
			for want := range 3 {
				res, err := s.Run(t.Context(), r)
				if err != nil || res.Allowed() != (want < 2) || res.TotalRequests != uint64(min(want+1, 2)) {
					t.Fatalf("hit %d in period %d: %+v, %v", want+1, ms, res, err)
				}
			}
			if ms%1000 > 0 && ms < 65_000 {
				continue
			}
			now, is := bucket()
			require.Equal(t, identity, is)
			if now != first {
				first = now
				moved++
			}
		}
		assert.Equal(t, 1, l.Stats().Buckets)
		checkTable(t, l.callers)
		clock.ns.Add(int64(time.Hour))
		assert.Equal(t, 1, l.Sweep())
		assert.Zero(t, checkTable(t, l.callers))
	}
}

// A sweep looks at the bucket, not only at the shard's bound: hits may have moved the end since.
func TestSweepKeepsABucketThatWasUsedAgain(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1})
	s := l.TokenBucket(0)
	r := &Request{Key: "id", Limit: 1, Duration: time.Second}
	MustRun(t, s, r)
	clock.setMs(2500)
	_, err := s.Run(t.Context(), r) // lowers no bound: the shard still thinks that it expires at 1000
	require.NoError(t, err)
	clock.setMs(3000)
	assert.Zero(t, l.Sweep())
	res := MustRun(t, s, r)
	assert.False(t, res.Allowed())
}

// Load counts the bytes of what it restores.
func TestLoadCountsRestoredBytes(t *testing.T) {
	from, _ := newTestLimiter(t, Config{})
	tiers := func(l *Limiter) *Tiers {
		return MustTiers(t, l, Tier{5, time.Second}, Tier{9, time.Minute})
	}
	for _, s := range []Strategy{from.SlidingLog(), from.List(), tiers(from)} {
		for range 3 {
			MustRun(t, s, &Request{Key: "id", Limit: 5, Duration: time.Second, Meta: "meta"})
		}
	}
	to, _ := newTestLimiter(t, Config{})
	require.NoError(t, to.Load(bytes.NewReader(saved(t, from))))
	held := bytesOf(&to.logs) + bytesOf(&to.lists) + bytesOf(&to.slices)
	require.Positive(t, held)
	assert.Equal(t, held, to.room.Bytes.Load())
}

// A small table keeps those of each strategy that have counted most.
func TestLoadKeepsWhoHasCountedMost(t *testing.T) {
	from, _ := newTestLimiter(t, Config{})
	strategies := func(l *Limiter) []Strategy {
		return []Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.Counter(),
			l.SlidingLog()}
	}
	const callers, kept = 20, 5
	for i := range callers {
		for _, s := range strategies(from) {
			r := &Request{Key: fmt.Sprint("caller", i*7%callers), Limit: 100, Duration: time.Minute}
			for range i*7%callers + 1 {
				MustRun(t, s, r)
			}
		}
	}
	to, _ := newTestLimiter(t, Config{MaxBuckets: kept * len(strategies(from))})
	require.ErrorIs(t, to.Load(bytes.NewReader(saved(t, from))), ErrFull)
	for _, s := range strategies(to) {
		for i := range callers {
			r := &Request{Key: fmt.Sprint("caller", i), Limit: 100, Duration: time.Minute}
			res := MustPeek(t, s, r)
			want := uint64(1)
			if i >= callers-kept {
				want = uint64(i) + 2
			}
			assert.Equal(t, want, res.TotalRequests, "%T, %d", s, i)
		}
	}
}

// A run goes on from what a look saw, and decides as if it had looked by itself, whatever came
// between.
func TestRunAfterALook(t *testing.T) {
	r := Request{Key: "id", Limit: 5, Duration: time.Hour}
	other := Request{Key: "other", Limit: 5, Duration: time.Hour}
	type looking = Counter
	hits := func(s looking, r Request, n int) {
		for range n {
			_, err := s.Run(t.Context(), &r)
			require.NoError(t, err)
		}
	}
	for name, make := range map[string]func(*Limiter) looking{
		"fixed window":   func(l *Limiter) looking { return l.FixedWindow() },
		"sliding window": func(l *Limiter) looking { return l.SlidingWindow() },
		"token bucket":   func(l *Limiter) looking { return l.TokenBucket(0) },
		"counter":        func(l *Limiter) looking { return l.Counter() },
		"calendar":       func(l *Limiter) looking { return l.Calendar(Hour, nil) },
	} {
		for between, c := range map[string]struct {
			change func(s looking)
			want   State
			total  uint64
			err    error
		}{
			"nothing":      {func(looking) {}, Allow, 3, nil},
			"one hit":      {func(s looking) { hits(s, r, 1) }, Allow, 4, nil},
			"the last hit": {func(s looking) { hits(s, r, 3) }, Deny, 5, nil},
			"a reset": {func(s looking) {
				require.NoError(t, ops.Reset(t.Context(), s, &r))
			}, Allow, 1, nil},
			"another caller": {func(s looking) {
				require.NoError(t, ops.Reset(t.Context(), s, &r))
				hits(s, other, 2)
			}, 0, 0, ErrFull},
		} {
			t.Run(name+"/"+between, func(t *testing.T) {
				l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 1}) // one slot
				s := make(l)
				hits(s, r, 2)
				op := &Op{Verb: OpPeek, Request: r, Deciding: true}
				s.Do(t.Context(), []*Op{op})
				require.NoError(t, op.Err)
				require.NotNil(t, op.seen.Slot)
				c.change(s)
				op.Verb = OpTake
				s.Do(t.Context(), []*Op{op})
				res, err := op.Result, op.Err
				if c.err == nil {
					require.NoError(t, err)
					assert.Equal(t, Result{State: c.want, TotalRequests: c.total, ExpiresAt: res.ExpiresAt}, res)
					return
				}
				require.ErrorIs(t, err, c.err)
				seen, err := ops.Peek(t.Context(), s, &other)
				require.NoError(t, err)
				assert.EqualValues(t, 3, seen.TotalRequests, "two hits, and the one that the look would add")
			})
		}
	}
}
