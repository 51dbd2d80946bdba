package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/weirtest"
)

// Package weirtest tests the laws of every strategy. These tests cover edge cases that were once
// wrong.

func TestEqualSeedsDoNotAddUp(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.SlidingWindow()
	counted := &weir.Result{State: weir.Allow, TotalRequests: 100,
		ExpiresAt: clock.Now().Add(time.Second)}
	for i := range 2000 {
		r := &weir.Request{Key: strconv.Itoa(i), Limit: 1000, Duration: time.Second}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { assert.NoError(t, ops.Seed(context.Background(), s, r, counted)) })
		}
		wg.Wait()
		require.EqualValues(t, 101, weir.MustRun(t, s, r).TotalRequests)
	}
}

func TestSeedOfNothingIsSwept(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{MaxBuckets: 2})
	tiers := weir.MustTiers(t, l, weir.Tier{Limit: 1, Duration: time.Second})
	r := &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
	for _, s := range []weir.Strategy{l.SlidingLog(), tiers} {
		require.NoError(t, ops.Seed(context.Background(), s, r,
			&weir.Result{ExpiresAt: clock.Now().Add(time.Second)}))
	}
	require.Equal(t, 2, l.Stats().Buckets)
	clock.Advance(time.Hour)
	assert.Equal(t, 2, l.Sweep())
}

func TestLogRefundsAWholeCostAtOneInstant(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.SlidingLog()
	five := weir.Request{Key: "a", Limit: 10, Duration: time.Second, Cost: 5}
	one := five
	one.Cost = 1
	taken := weir.MustRun(t, s, &five)
	weir.MustRun(t, s, &one)
	require.NoError(t, ops.Refund(context.Background(), s, &five, taken))
	assert.EqualValues(t, 2, weir.MustRun(t, s, &one).TotalRequests)
}

func TestSumsSaturate(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	tiers := weir.MustTiers(t, l, weir.Tier{Limit: 1_000_000, Duration: time.Second},
		weir.Tier{Limit: 10, Duration: 2 * time.Second})
	for _, s := range []weir.Strategy{l.SlidingLog(), tiers} {
		r := weir.Request{Key: "a", Limit: 10, Duration: 2 * time.Second}
		all := &weir.Result{TotalRequests: math.MaxUint64, ExpiresAt: clock.Now().Add(time.Second)}
		require.NoError(t, ops.Seed(context.Background(), s, &r, all))
		clock.Advance(time.Second)
		charge := r
		charge.Cost = 1000
		require.NoError(t, ops.Charge(context.Background(), s, &charge))
		clock.Advance(2 * time.Second)
		admitted := 0
		for range 20 {
			if weir.MustRun(t, s, &r).Allowed() {
				admitted++
			}
		}
		assert.Equal(t, 10, admitted, "%T", s)
	}
}

func TestTokenBucketAtExtremeInstants(t *testing.T) {
	for _, now := range []time.Time{{}, time.Unix(math.MaxInt64/2, 0)} {
		l, err := weir.New(weir.Config{SweepEvery: time.Hour, Now: func() time.Time { return now }})
		require.NoError(t, err)
		_, err = l.TokenBucket(0).Run(context.Background(),
			&weir.Request{Key: "a", Limit: 1, Duration: time.Second})
		assert.NoError(t, err)
		l.Close()
	}
}

func TestDenialThatCanNeverPassModifiesTheBucket(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	weir.MustCheck(t, l, "a", 60_000, 1)
	clock.Advance(time.Second)
	weir.MustCheck(t, l, "a", 60_000, 0)
	b := weir.MustInspect(t, l, "a", 60_000)
	assert.EqualValues(t, 1, b.Denied)
	assert.True(t, b.Modified.Equal(clock.Now()))
}

// anchoredAt returns the strategies whose period begins with the first hit.
func anchoredAt(t *testing.T, clock *weirtest.Clock) map[string]weir.Strategy {
	l := weir.MustNew(t, weir.Config{Now: clock.Now, Timeout: 1})
	return map[string]weir.Strategy{"Counter": l.Counter(), "List": l.List()}
}

// A refund takes effect within its period only, and not below zero. The period is unchanged.
func TestRefundWhereThePeriodBeginsWithTheFirstHit(t *testing.T) {
	clock := noon()
	for name, s := range anchoredAt(t, clock) {
		t.Run(name, func(t *testing.T) {
			clock.Set(noon().Now())
			request := func(cost uint64) *weir.Request {
				return &weir.Request{Key: "a", Limit: 10, Duration: time.Minute, Cost: cost}
			}
			first := weir.MustRun(t, s, request(3))
			clock.Advance(10 * time.Second)
			second := weir.MustRun(t, s, request(4))
			require.NoError(t, ops.Refund(t.Context(), s, request(4), second))
			assert.Equal(t, uint64(3), weir.Counted(t, s, request(1)))
			require.NoError(t, ops.Refund(t.Context(), s, request(5), first))
			assert.Equal(t, uint64(0), weir.Counted(t, s, request(1)), "not below zero")
			third := weir.MustRun(t, s, request(6))
			assert.Equal(t, first.ExpiresAt, third.ExpiresAt, "the period is unchanged")

			clock.Set(first.ExpiresAt)
			fourth := weir.MustRun(t, s, request(2))
			require.NoError(t, ops.Refund(t.Context(), s, request(6), third))
			assert.Equal(t, uint64(2), weir.Counted(t, s, request(1)), "the period has ended")
			clock.Set(fourth.ExpiresAt)
			require.NoError(t, ops.Refund(t.Context(), s, request(2), fourth))
			fifth := weir.MustRun(t, s, request(1))
			assert.Equal(t, clock.Now().Add(time.Minute), fifth.ExpiresAt, "a refund begins no period")
		})
	}
}

// A seeded period of another store continues, and ends when it would have there.
func TestSeedWhereThePeriodBeginsWithTheFirstHit(t *testing.T) {
	clock := noon()
	for name, s := range anchoredAt(t, clock) {
		t.Run(name, func(t *testing.T) {
			clock.Set(noon().Now())
			r := &weir.Request{Key: "a", Limit: 10, Duration: time.Minute}
			end := clock.Now().Add(20 * time.Second)
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{ExpiresAt: end}))
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 9, ExpiresAt: end}))
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 4,
				ExpiresAt: end.Add(time.Second)}))
			res := weir.MustRun(t, s, r)
			assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 10, ExpiresAt: end}, res)
			clock.Set(end.Add(-1))
			require.NoError(t, ops.Charge(t.Context(), s, r))
			assert.Equal(t, uint64(11), weir.Counted(t, s, r))
			clock.Set(end)
			assert.Equal(t, uint64(0), weir.Counted(t, s, r))
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 3,
				ExpiresAt: end.Add(time.Hour)}))
			res = weir.MustPeek(t, s, r)
			assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 4,
				ExpiresAt: end.Add(time.Minute)}, res)
		})
	}
}

// A bucket is removed when its period has ended, and not before.
func TestBucketLastsAsLongAsThePeriodOfItsFirstHit(t *testing.T) {
	clock := noon()
	l := weir.MustNew(t, weir.Config{Now: clock.Now, Timeout: 1})
	r := &weir.Request{Key: "a", Limit: 2, Duration: time.Minute}
	for _, s := range []weir.Strategy{l.Counter(), l.List()} {
		for range 2 {
			weir.MustRun(t, s, r)
			clock.Advance(30 * time.Second)
		}
		clock.Advance(-1)
		assert.Zero(t, l.Sweep())
		clock.Advance(1 + 1)
		assert.Equal(t, 1, l.Sweep())
	}
}

// A List refunds the newest hits with the Meta of the request.
func TestListRefundsTheHitsOfItsMeta(t *testing.T) {
	clock := noon()
	l := limiterAt(clock)
	defer l.Close()
	s := l.List()
	request := func(meta string, cost uint64) *weir.Request {
		return &weir.Request{Key: "a", Limit: 100, Duration: time.Minute, Meta: meta, Cost: cost}
	}
	var last *weir.Result
	for _, r := range []*weir.Request{request("", 5), request("x", 2), request("y", 3),
		request("x", 1),
		request("y", 4)} {
		last = weir.MustRun(t, s, r)
	}
	list := func() (metas string) {
		entries, err := ops.Hits(t.Context(), s, request("", 1))
		require.NoError(t, err)
		for _, e := range entries {
			metas += fmt.Sprint(e.Meta, e.Cost, " ")
		}
		return metas
	}
	require.NoError(t, ops.Refund(t.Context(), s, request("x", 2), last))
	assert.Equal(t, "5 x1 y3 y4 ", list(), "the newer x, and one of the older x")
	require.NoError(t, ops.Refund(t.Context(), s, request("x", 6), last))
	assert.Equal(t, "5 y2 ", list(), "the last x, then the newest of the others")
	require.NoError(t, ops.Refund(t.Context(), s, request("", 100), last))
	assert.Empty(t, list())
	require.NoError(t, ops.Charge(t.Context(), s, request("z", 7)))
	assert.Equal(t, "z7 ", list())
	res := weir.MustPeek(t, s, request("z", 1))
	assert.Equal(t, last.ExpiresAt, res.ExpiresAt, "the first hit determines the start of the period")
	clock.Set(last.ExpiresAt)
	assert.Empty(t, list())
	_, err := ops.Hits(t.Context(), s, &weir.Request{})
	assert.ErrorIs(t, err, weir.ErrID)
}

// A count is never raised beyond maxCount, whatever the limit: its bits end there.
func TestCountEndsAtItsMaximum(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{SweepEvery: time.Hour})
	f := l.FixedWindow()
	r := &weir.Request{Key: "id", Limit: math.MaxUint64, Duration: time.Second, Cost: maxCount - 1}
	require.NoError(t, ops.Charge(t.Context(), f, r))
	for _, want := range []weir.State{weir.Allow, weir.Deny, weir.Deny} {
		res := weir.MustCheck(t, l, "id", 1000, math.MaxInt64)
		assert.Equal(t, want, res.State)
		assert.Equal(t, uint64(maxCount), res.TotalRequests)
	}
}

// Even if each reading of the clock is in another window, a decision returns, before Close and
// after.
func TestClockThatCrossesAWindowAtEachReading(t *testing.T) {
	var ms atomic.Int64
	l, err := weir.New(weir.Config{Now: func() time.Time { return time.UnixMilli(ms.Add(10)) }})
	require.NoError(t, err)
	r := &weir.Request{Key: "id", Limit: 5, Duration: 10 * time.Millisecond}
	for i := range 100 {
		r.Key = strconv.Itoa(i % 10)
		for _, s := range []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.SlidingLog(),
			l.TokenBucket(0)} {
			weir.MustRun(t, s, r)
		}
	}
	require.NoError(t, l.Close())
	_, err = l.SlidingWindow().Run(t.Context(), r)
	require.ErrorIs(t, err, weir.ErrClosed)
}

// A caller has one bucket across windows.
func TestSlidingWindowHoldsOneBucketACaller(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	r := &weir.Request{Key: "id", Limit: 5, Duration: time.Second}
	for ms := range int64(50) {
		setMs(clock, ms*100)
		weir.MustRun(t, l.SlidingWindow(), r)
		require.Equal(t, 1, l.Stats().Buckets)
	}
	setMs(clock, 60_000)
	res := weir.MustRun(t, l.SlidingWindow(), r)
	assert.EqualValues(t, 1, res.TotalRequests)
}

// A refunded hit leaves the log. Otherwise refunds would let it grow without bound.
func TestRefundedHitsLeaveTheLog(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.SlidingLog()
	r := &weir.Request{Key: "id", Limit: 3, Duration: time.Hour}
	random := rand.New(rand.NewPCG(7, 8))
	var held []*weir.Result
	for range 5000 {
		clock.Advance(time.Duration(random.Int64N(2)))
		if i := random.IntN(4); i < len(held) {
			require.NoError(t, ops.Refund(t.Context(), s, r, held[i]))
			held = append(held[:i], held[i+1:]...)
			continue
		}
		res := weir.MustRun(t, s, r)
		require.Equal(t, len(held) < 3, res.Allowed())
		if res.Allowed() {
			held = append(held, res)
		}
		entries, err := ops.Hits(t.Context(), s, r)
		require.NoError(t, err)
		require.Len(t, entries, len(held))
	}
	assert.Less(t, weir.BytesInUse(l), int64(500))
}

// The memory of logs is bounded. At the bound growth fails with ErrFull, even for known callers,
// until hits expire.
func TestLogsAreBoundedInBytes(t *testing.T) {
	for _, meta := range []string{"", strings.Repeat("m", 300)} {
		l, clock := newLimiter(t, weir.Config{MaxBuckets: 100})
		s := l.SlidingLog()
		bound := weir.MaxBytes(l)
		require.EqualValues(t, 1<<20+100*256, bound)
		hits := 0
		for full := 0; full < 50; {
			r := &weir.Request{Key: strconv.Itoa(hits % 50), Limit: 1 << 40, Duration: time.Second, Meta: meta}
			_, err := s.Run(t.Context(), r)
			require.LessOrEqual(t, weir.BytesInUse(l), bound)
			if hits%100 == 0 || err != nil {
				require.Equal(t, weir.StateBytes(l), weir.BytesInUse(l))
			}
			if err == nil {
				hits++
				continue
			}
			require.ErrorIs(t, err, weir.ErrFull)
			require.ErrorIs(t, ops.Charge(t.Context(), s, r), weir.ErrFull)
			full++
		}
		require.Greater(t, hits, 1000)
		require.EqualValues(t, hits, l.Stats().Allowed, "an error counts nothing")
		buckets := l.Stats().Buckets
		_, err := s.Run(t.Context(), &weir.Request{Key: "new", Limit: 1 << 40, Duration: time.Second,
			Meta: strings.Repeat("m", 1<<20)})
		require.ErrorIs(t, err, weir.ErrFull, "a new caller")
		require.Equal(t, buckets, l.Stats().Buckets, "a denied caller has no bucket")
		setMs(clock, 1000)
		r := &weir.Request{Key: "another", Limit: 1 << 40, Duration: time.Second}
		res, err := s.Run(t.Context(), r)
		require.NoError(t, err, "everything is over")
		assert.Equal(t, weir.StateBytes(l), weir.BytesInUse(l))
		require.NoError(t, ops.Refund(t.Context(), s, r, res))
		assert.Equal(t, weir.StateBytes(l), weir.BytesInUse(l))
		setMs(clock, 100_000)
		l.Sweep()
		assert.Zero(t, weir.BytesInUse(l))
		assert.Zero(t, l.Stats().Buckets)
	}
}

func TestPeekKeepsNoStateAlive(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 1})
	tiers := weir.MustTiers(t, l, weir.Tier{5, time.Second})
	for name, s := range map[string]weir.Strategy{
		"log": l.SlidingLog(), "tiers": tiers, "queue": l.LeakyBucket(0), "window": l.SlidingWindow(),
		"tokens": l.TokenBucket(0),
	} {
		setMs(clock, 0)
		r := &weir.Request{Key: name, Limit: 5, Duration: time.Second}
		weir.MustRun(t, s, r)
		for ms := range int64(30) {
			clock.Set(time.Unix(0, ms*100*msec+1).UTC())
			weir.MustPeek(t, s, r)
		}
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}

// After a partial refund the rest of a hit still counts.
func TestRefundInPartLeavesTheRest(t *testing.T) {
	l := weir.Hourly(t)
	s := l.SlidingLog()
	r := weir.Request{Key: "id", Limit: 3, Duration: time.Second}
	cost3 := r
	cost3.Cost = 3
	res := weir.MustRun(t, s, &cost3)
	require.NoError(t, ops.Refund(t.Context(), s, &r, res))
	entries, err := ops.Hits(t.Context(), s, &r)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.EqualValues(t, 2, entries[0].Cost)
	peeked := weir.MustPeek(t, s, &r)
	assert.EqualValues(t, 3, peeked.TotalRequests)
}

func hitOf(key string) *weir.Request {
	return &weir.Request{Key: key, Limit: 1, Duration: 10 * time.Millisecond}
}

func TestStatesAreSweptWhenTheTimeoutHasPassed(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	for name, s := range weir.LockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			start := clock.Now().UnixNano() / msec
			weir.MustRun(t, s, hitOf("a"))
			setMs(clock, start+2)
			_, err := s.Run(t.Context(), hitOf("a")) // a denial does not extend the state's life
			require.NoError(t, err)
			setMs(clock, start+16)
			assert.Zero(t, l.Sweep(), "it is kept for 7 ms after it has expired")
			setMs(clock, start+17)
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
			assert.Zero(t, weir.BytesInUse(l))
			setMs(clock, start+1000)
		})
	}
}

func TestSweepKeepsStatesThatAreUsedAgain(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range weir.LockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				weir.MustRun(t, s, hitOf("early"))
				clock.Advance(time.Duration(5 * msec))
				weir.MustRun(t, s, hitOf("late"))
				clock.Advance(time.Duration(6 * msec))
				assert.Equal(t, 1, l.Sweep(), "only the early one has expired")
				clock.Advance(time.Duration(4 * msec))
			}
			clock.Advance(time.Duration(5 * msec))
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
		})
	}
}

func TestErrFullEnds(t *testing.T) {
	for name := range weir.LockedStrategies(t, weir.Hourly(t)) {
		t.Run(name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{MaxBuckets: 2, SweepEvery: time.Hour})
			s := weir.LockedStrategies(t, l)[name]
			for round := range 3 {
				run := func(key string) error {
					_, err := s.Run(t.Context(), hitOf(fmt.Sprint(round, key)))
					return err
				}
				require.NoError(t, run("a"))
				require.NoError(t, run("b"))
				require.ErrorIs(t, run("c"), weir.ErrFull)
				require.NoError(t, run("a"), "a known caller is decided")
				clock.Advance(time.Duration(10*msec - 1))
				require.ErrorIs(t, run("c"), weir.ErrFull)
				clock.Advance(time.Duration(1))
				require.NoError(t, run("c"), "the first bucket has expired")
				clock.Advance(time.Duration(20 * msec))
			}
		})
	}
}

// A state emptied by a refund is also kept for Timeout, so that its time does not go back.
func TestEmptiedStatesAreKept(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	strategies := weir.LockedStrategies(t, l)
	strategies["TokenBucket"] = l.TokenBucket(0)
	for name, s := range strategies {
		setMs(clock, 1000)
		r := hitOf(name)
		res := weir.MustRun(t, s, r)
		require.NoError(t, ops.Refund(t.Context(), s, r, res))
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		setMs(clock, 1006)
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		setMs(clock, 1020)
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}

// Seeding a state with its own count neither extends its life nor lets it grow.
func TestSeedOfAnEqualCountExtendsNothing(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range weir.LockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			res := weir.MustRun(t, s, hitOf("id"))
			bytes := weir.BytesInUse(l)
			if name != "LeakyBucket" { // there the seed is more than what remains later
				clock.Advance(time.Duration(5 * msec))
			}
			seed := &weir.Result{State: weir.Allow, TotalRequests: res.TotalRequests,
				ExpiresAt: res.ExpiresAt.Add(time.Second)}
			require.NoError(t, ops.Seed(t.Context(), s, hitOf("id"), seed))
			assert.Equal(t, bytes, weir.BytesInUse(l))
			clock.Set(time.Unix(0, res.ExpiresAt.UnixNano()+5*msec+1).UTC())
			if name != "Tiers" { // its Result may describe the shorter tier
				clock.Set(time.Unix(0, res.ExpiresAt.UnixNano()+1).UTC())
			}
			assert.Equal(t, 1, l.Sweep())
		})
		clock.Advance(time.Duration(1000*msec - clock.Now().UnixNano()%msec))
	}
}

// An Admit that fails has no Result, and nothing to give back.
func TestAdmitFailsAtAFullTable(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{MaxBuckets: 1})
	weir.MustCheck(t, l, "first", 1000, 1)
	r := &weir.Request{Key: "second", Limit: 1, Duration: time.Second}
	for _, s := range []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.SlidingLog()} {
		res, back, err := ops.Admit(t.Context(), s, r)
		require.ErrorIs(t, err, weir.ErrFull)
		assert.Nil(t, res)
		assert.Nil(t, back)
	}
}

// A sweep looks at the bucket, not only at the shard's bound: hits may have moved the end since.
func TestSweepKeepsABucketThatWasUsedAgain(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{SweepEvery: time.Hour, Timeout: 1})
	s := l.TokenBucket(0)
	r := &weir.Request{Key: "id", Limit: 1, Duration: time.Second}
	weir.MustRun(t, s, r)
	setMs(clock, 2500)
	_, err := s.Run(t.Context(), r) // lowers no bound: the shard still thinks that it expires at 1000
	require.NoError(t, err)
	setMs(clock, 3000)
	assert.Zero(t, l.Sweep())
	res := weir.MustRun(t, s, r)
	assert.False(t, res.Allowed())
}

func TestTiersCountTogetherInAnyOrder(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	a := weir.MustTiers(t, l, weir.Tier{3, time.Minute}, weir.Tier{10, time.Hour})
	b := weir.MustTiers(t, l, weir.Tier{10, time.Hour}, weir.Tier{3, time.Minute})
	c := weir.MustTiers(t, l, weir.Tier{10, time.Hour}, weir.Tier{3, time.Minute}, weir.Tier{10, time.Second})
	r := &weir.Request{Key: "id"}
	for i, s := range []*weir.Tiers{a, b, a} {
		res, tier, err := weir.RunTier(t.Context(), s, r)
		require.NoError(t, err)
		assert.True(t, res.Allowed())
		assert.EqualValues(t, i+1, res.TotalRequests)
		assert.Equal(t, weir.Tier{3, time.Minute}, tier, "it has the least left")
	}
	res, tier, err := weir.RunTier(t.Context(), b, r)
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.Equal(t, weir.Tier{3, time.Minute}, tier)
	res = weir.MustRun(t, c, r)
	assert.True(t, res.Allowed(), "other durations count by themselves")
}

func TestTiersReturnTheFirstOfEqualTiers(t *testing.T) {
	for _, given := range [][]weir.Tier{
		{{5, time.Second}, {5, 2 * time.Second}}, {{5, 2 * time.Second}, {5, time.Second}},
	} {
		l, _ := newLimiter(t, weir.Config{})
		s := weir.MustTiers(t, l, given...)
		_, tier, err := weir.RunTier(t.Context(), s, &weir.Request{Key: "id"})
		require.NoError(t, err)
		assert.Equal(t, given[0], tier)
		res, tier, err := weir.RunTier(t.Context(), s, &weir.Request{Key: "id", Cost: 6})
		require.NoError(t, err)
		assert.True(t, res.ExpiresAt.IsZero(), "it can never pass")
		assert.Equal(t, given[0], tier)
	}
}

func TestTiersCreateNothingForImpossibleCosts(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := weir.MustTiers(t, l, weir.Tier{3, time.Second}, weir.Tier{10, time.Minute})
	res := weir.MustRun(t, s, &weir.Request{Key: "id", Cost: 4})
	assert.False(t, res.Allowed())
	assert.True(t, res.ExpiresAt.IsZero())
	assert.Zero(t, l.Stats().Buckets)
}

func TestTiersDenyAHugeCostWithAHugeCount(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := weir.MustTiers(t, l, weir.Tier{10, time.Second}, weir.Tier{20, time.Minute})
	r := &weir.Request{Key: "id", Cost: math.MaxUint64}
	require.NoError(t, ops.Charge(t.Context(), s, r))
	res := weir.MustRun(t, s, r)
	assert.False(t, res.Allowed())
	assert.True(t, res.ExpiresAt.IsZero())
	assert.Equal(t, uint64(math.MaxInt64), res.TotalRequests)
}

func TestTiersWithAResolutionCountByThemselves(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	coarse := weir.MustTiers(t, l, weir.Tier{3, time.Minute}, weir.Tier{10, time.Hour})
	fine := coarse.Resolution(6 * time.Second)
	finer := fine.Resolution(time.Second)
	for name, s := range map[string]*weir.Tiers{"coarse": coarse, "fine": fine, "finer": finer} {
		res := weir.MustRun(t, s, &weir.Request{Key: "id"})
		assert.EqualValues(t, 1, res.TotalRequests, name)
	}
	again := coarse.Resolution(time.Second)
	res, tier, err := weir.RunTier(t.Context(), again, &weir.Request{Key: "id"})
	require.NoError(t, err)
	assert.EqualValues(t, 2, res.TotalRequests, "the same Durations and Resolution")
	assert.Equal(t, weir.Tier{3, time.Minute}, tier)
	assert.Equal(t, time.Hour, coarse.About().Longest)
	assert.Equal(t, time.Hour+time.Second, finer.About().Longest)
}

// Tiers that cannot be fail as other strategies with such numbers do: Limit panics, and NewLimit
// and each call fail, which count nothing.
func TestTiersThatCannotBe(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	for name, s := range map[string]*weir.Tiers{
		"no tiers":     l.Tiers(),
		"no duration":  l.Tiers(weir.Tier{Limit: 1}),
		"microseconds": l.Tiers(weir.Tier{1, time.Microsecond}),
		"two of one":   l.Tiers(weir.Tier{1, time.Second}, weir.Tier{2, time.Minute}, weir.Tier{2, time.Second}),
		"resolution":   l.Tiers(weir.Tier{1, time.Second}).Resolution(300 * time.Millisecond),
		"of bad ones":  l.Tiers().Resolution(time.Second),
	} {
		_, err := weir.NewLimit(s, 0, 0)
		require.ErrorIs(t, err, weir.ErrScale, name)
		_, err = s.Run(t.Context(), &weir.Request{Key: "id"})
		require.ErrorIs(t, err, weir.ErrScale, name)
		require.ErrorIs(t, ops.Charge(t.Context(), s, &weir.Request{Key: "id"}), weir.ErrScale, name)
		assert.PanicsWithValue(t, err.Error(), func() { s.Limit() }, name)
	}
	assert.Zero(t, l.Stats().Allowed)
	assert.True(t, l.Tiers(weir.Tier{1, time.Second}).Limit().Allow("id"), "the control")
}

func TestTiersRejectAResolutionThatDoesNotDivideTheirSlices(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := weir.MustTiers(t, l, weir.Tier{3, 2 * time.Second}, weir.Tier{10, 3 * time.Second})
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 300 * time.Millisecond, 2 * time.Second,
		400 * 24 * time.Hour} {
		_, err := weir.NewLimit(s.Resolution(d), 0, 0)
		assert.ErrorIs(t, err, weir.ErrScale, "%v", d)
	}
	for _, d := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second} {
		_, err := weir.NewLimit(s.Resolution(d), 0, 0)
		assert.NoError(t, err, "%v", d)
	}
}

// Charges and seeds of any size deny at any time. Before 1970 they once overflowed and admitted
// everything.
func TestUnboundedChargesDeny(t *testing.T) {
	for _, at := range []int64{math.MinInt64 / 2, -1e18, -1, 0, 1e18} {
		l, clock := newLimiter(t, weir.Config{})
		clock.Set(time.Unix(0, at).UTC())
		tiers := weir.MustTiers(t, l, weir.Tier{5, time.Second})
		for name, s := range map[string]weir.Strategy{
			"fixed": l.FixedWindow(), "sliding": l.SlidingWindow(), "log": l.SlidingLog(),
			"tokens": l.TokenBucket(0),
			"tiers":  tiers, "queue": l.LeakyBucket(0),
		} {
			r := &weir.Request{Key: name, Limit: 5, Duration: time.Second, Cost: math.MaxUint64}
			for range 3 {
				require.NoError(t, ops.Charge(t.Context(), s, r))
			}
			end := clock.Now().Add(time.Second)
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: math.MaxUint64,
				ExpiresAt: end}))
			r.Cost = 1
			res := weir.MustRun(t, s, r)
			assert.False(t, res.Allowed(), "%s at %d", name, at)
			assert.Positive(t, int64(res.TotalRequests), "%s at %d", name, at)
		}
	}
}

// The longest burst takes 2^62 ns, 146 years, to refill. A nanosecond more is an error.
func TestLongestBurst(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	run := func(burst uint64) error { // a token takes 1<<20 ns
		_, err := l.TokenBucket(burst).Run(t.Context(),
			&weir.Request{Key: "a", Limit: 1e9, Duration: (1 << 20) * time.Second})
		return err
	}
	assert.NoError(t, run(1<<42))
	assert.NoError(t, run(1<<41+1))
	assert.ErrorIs(t, run(1<<42+1), weir.ErrLimit)
}

func tokenBuckets(t testing.TB) verbtest.Buckets {
	return func(burst uint64, now func() time.Time) weir.Strategy {
		l := weir.MustNew(t, weir.Config{Now: now})
		return l.TokenBucket(burst)
	}
}

// What was used stays used, in tokens, when the rate changes.
func TestTokenBucketKeepsWhatWasUsedWhenTheRateChanges(t *testing.T) {
	rejected := 0
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(tokenBuckets(t)))
		if row.Play(verbtest.ForgetfulBucket) != nil {
			rejected++
		}
	}
	assert.Greater(t, rejected, len(verbtest.RateRows)/2, "buckets that keep no rate")
}

// Rates that change at random give nothing away, and lose no more than a nanosecond's tokens with
// each change.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	require.NoError(t,
		verbtest.RateDifferences(tokenBuckets(t), 1, slow.N(20_000, 100_000, 1_000_000)))
}

// What is in a leaky bucket stays in it when the rate changes.
func TestLeakyBucketKeepsWhatIsInItWhenTheRateChanges(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit [2]uint64 // in a minute
		wait  time.Duration
	}{
		{"a raised rate helps at once", [2]uint64{1, 600}, 100 * time.Millisecond},
		{"a lowered rate gives nothing away", [2]uint64{600, 6}, 10 * time.Second},
		{"the same rate", [2]uint64{60, 60}, time.Second},
	} {
		now := time.Unix(1_700_000_000, 0)
		l, err := weir.New(weir.Config{SweepEvery: time.Hour, Now: func() time.Time { return now }})
		require.NoError(t, err)
		run := func(limit uint64) *weir.Result {
			return weir.MustRun(t, l.LeakyBucket(0), &weir.Request{Key: "a", Limit: limit, Duration: time.Minute})
		}
		require.True(t, run(row.limit[0]).Allowed(), row.name)
		for _, at := range []time.Duration{0, row.wait - 1} {
			now = time.Unix(1_700_000_000, int64(at))
			res := run(row.limit[1])
			assert.False(t, res.Allowed(), row.name)
			assert.EqualValues(t, 1, res.TotalRequests, row.name)
			assert.Equal(t, row.wait-at, res.ExpiresAt.Sub(now), row.name)
		}
		now = time.Unix(1_700_000_000, int64(row.wait))
		assert.True(t, run(row.limit[1]).Allowed(), row.name)
		require.NoError(t, l.Close())
	}
}

// Those who wait in a leaky bucket leave at the rate of the latest request.
func TestARaisedRateHelpsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.MustNew(t, weir.Config{})
		start, left := time.Now(), make([]time.Duration, 3)
		var callers sync.WaitGroup
		for i, limit := range []uint64{1, 1, 600} {
			callers.Go(func() {
				res, err := l.LeakyBucket(2).Run(t.Context(),
					&weir.Request{Key: "a", Limit: limit, Duration: time.Minute})
				assert.NoError(t, err)
				assert.True(t, res.Allowed())
				left[i] = time.Since(start)
			})
			time.Sleep(6 * time.Second)
		}
		callers.Wait()
		// After 12 s 0.8 of the first is in the bucket: 80 ms at the new rate.
		assert.Equal(t, []time.Duration{0, 12*time.Second + 80*time.Millisecond,
			12*time.Second + 180*time.Millisecond}, left)
	})
}

// A cost over the limit is never admitted, even if both exceed the largest count.
func TestHugeCostsOverHugeLimitsAreDenied(t *testing.T) {
	l := weir.Hourly(t)
	for name, s := range map[string]weir.Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(), "SlidingLog": l.SlidingLog(),
		"Counter": l.Counter(), "List": l.List(),
	} {
		for _, limit := range []uint64{1 << 48, 1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1} {
			res := weir.MustRun(t, s, &weir.Request{Key: "id", Limit: limit, Duration: time.Second, Cost: limit + 1})
			require.Equal(t, weir.Result{State: weir.Deny}, *res, "%s, %d", name, limit)
		}
	}
}

func TestJoinKeyIsInjective(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []string
	}{
		{"a delimiter in the first part or the second", []string{"a", "b:c"}, []string{"a:b", "c"}},
		{"one part or two", []string{"ab"}, []string{"a", "b"}},
		{"an empty part before or after", []string{"", "a"}, []string{"a", ""}},
		{"no part or an empty one", nil, []string{""}},
		{"two empty parts or three", []string{"", ""}, []string{"", "", ""}},
		{"a part that is a joined key", []string{"a", "b"}, []string{weir.JoinKey("a", "b")}},
		{"a part that looks like a length", []string{"1:a"}, []string{"1", "a"}},
		{"a zero byte", []string{"a\x00", "b"}, []string{"a", "\x00b"}},
		{"invalid UTF-8", []string{"\xff", "\xfe"}, []string{"\xff\xfe", ""}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.NotEqual(t, weir.JoinKey(c.a...), weir.JoinKey(c.b...)) })
	}
	assert.Equal(t, weir.JoinKey("a", "b"), weir.JoinKey("a", "b"), "the same parts")
}

// After the last representable instant the clock stands still, and counts remain.
func TestNothingExpiresAfterTheLastInstant(t *testing.T) {
	l := weir.MustNew(t, weir.Config{Timeout: 1,
		Now: func() time.Time { return time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }})
	tiers := weir.MustTiers(t, l, weir.Tier{1, time.Second})
	for name, s := range map[string]weir.Strategy{"log": l.SlidingLog(), "queue": l.LeakyBucket(0),
		"tiers": tiers} {
		l.Sweep() // there are no states
		r := &weir.Request{Key: name, Limit: 1, Duration: 10 * time.Millisecond}
		for i := range 3 {
			res := weir.MustPeek(t, s, r)
			require.Equal(t, i == 0, res.Allowed(), name)
			if i == 0 {
				require.NoError(t, ops.Charge(t.Context(), s, r))
			}
			l.Sweep()
		}
	}
	for i := range 3 {
		res := weir.MustCheck(t, l, "id", 1000, 1)
		require.Equal(t, i == 0, res.Allowed())
		l.Sweep()
	}
}

func zone(t testing.TB, name string) *time.Location {
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func TestCalendarCountsByTheMonth(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, berlin)
	s := weir.CalendarAt(t, &now).Calendar(weir.Month, berlin)
	r := &weir.Request{Key: "alice", Limit: 3}
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, berlin)
	for n := range uint64(3) {
		res := weir.MustRun(t, s, r)
		assert.Equal(t, weir.Allow, res.State)
		assert.Equal(t, n+1, res.TotalRequests)
		assert.True(t, november.Equal(res.ExpiresAt), "%v", res.ExpiresAt)
		now = now.Add(10 * 24 * time.Hour)
	}
	now = november.Add(-1)
	res := weir.MustRun(t, s, r)
	assert.Equal(t, weir.Deny, res.State)
	assert.True(t, november.Equal(res.ExpiresAt))
	now = november
	res, err := s.Run(context.Background(), &weir.Request{Key: "alice", Limit: 3, Duration: time.Nanosecond})
	require.NoError(t, err, "the Duration is ignored")
	assert.EqualValues(t, 1, res.TotalRequests)
	assert.True(t, november.AddDate(0, 1, 0).Equal(res.ExpiresAt))
}

func TestCalendarOnDaysOnWhichClocksAreSet(t *testing.T) {
	for _, c := range []struct {
		zone, day string
		hours     float64
	}{
		{"Europe/Berlin", "2026-03-29", 23}, {"Europe/Berlin", "2026-10-25", 25},
		{"Europe/Berlin", "2026-10-26", 24},
		{"Australia/Lord_Howe", "2026-10-04", 23.5}, {"Asia/Kathmandu", "2026-10-04", 24},
	} {
		t.Run(c.zone+" "+c.day, func(t *testing.T) {
			z := zone(t, c.zone)
			now, err := time.ParseInLocation(time.DateOnly, c.day, z)
			require.NoError(t, err)
			s := weir.CalendarAt(t, &now).Calendar(weir.Day, z)
			start := now
			res := weir.MustRun(t, s, &weir.Request{Key: "k", Limit: 1})
			require.True(t, res.Allowed())
			assert.Equal(t, c.hours, res.ExpiresAt.Sub(start).Hours())
			for now = now.Add(time.Minute); now.Before(res.ExpiresAt); now = now.Add(time.Minute) {
				again := weir.MustRun(t, s, &weir.Request{Key: "k", Limit: 1})
				require.False(t, again.Allowed(), "%v", now)
			}
			again := weir.MustRun(t, s, &weir.Request{Key: "k", Limit: 1})
			require.True(t, again.Allowed())
		})
	}
}

// Two calendars count together if they have one name, and else apart; neither counts with a fixed
// window, nor is it reset with one.
func TestCalendarsCountApart(t *testing.T) {
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	l := weir.CalendarAt(t, &now)
	r := &weir.Request{Key: "k", Limit: 9, Duration: 24 * time.Hour}
	count := func(s weir.Strategy) uint64 {
		return weir.MustRun(t, s, r).TotalRequests
	}
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day, time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(weir.Day, nil)))
	assert.EqualValues(t, 1, count(l.FixedWindow()))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Month, time.UTC)))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Month.From(2), time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(weir.Month.From(2).From(1), time.UTC)),
		"the first is the usual day")
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day, zone(t, "Europe/Berlin"))))
	assert.EqualValues(t, 2, count(l.Calendar(weir.Day, zone(t, "Europe/Berlin"))))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day, time.FixedZone("Z", 60))))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day, time.FixedZone("Z", 120))))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day.At(6*time.Hour), time.UTC)))
	assert.EqualValues(t, 1, count(l.Calendar(weir.Month.From(2).At(6*time.Hour), time.UTC)))
	assert.EqualValues(t, 2, count(l.Calendar(weir.Month.At(6*time.Hour).From(2), time.UTC)))

	names := map[string]uint64{}
	for b := range l.Buckets() {
		names[b.Calendar] = b.Count
	}
	assert.Equal(t, map[string]uint64{
		"": 1, "day@UTC": 2, "month@UTC": 2, "month:2@UTC": 1, "day@Europe/Berlin": 2,
		"day@Z+60": 1, "day@Z+120": 1, "day:6h@UTC": 1, "month:2:6h@UTC": 2,
	}, names)
	reset, err := ops.ResetPrefix(context.Background(), l.FixedWindow(), "", nil)
	require.NoError(t, err)
	assert.Equal(t, 1, reset)
	reset, err = ops.ResetPrefix(context.Background(), l.Calendar(weir.Day, nil), "", nil)
	require.NoError(t, err)
	assert.Equal(t, 1, reset)
	assert.EqualValues(t, 1, count(l.Calendar(weir.Day, nil)))
	assert.EqualValues(t, 3, count(l.Calendar(weir.Day, zone(t, "Europe/Berlin"))))

	_, err = l.CheckRate("k", weir.MaxScale+1, 9)
	assert.ErrorIs(t, err, weir.ErrScale, "the scale that stands for a calendar is none of CheckRate's")
	_, err = l.Inspect("k", weir.MaxScale+1)
	assert.ErrorIs(t, err, weir.ErrScale)
}

func TestCalendarIsSweptWhenItsWindowHasEnded(t *testing.T) {
	now := time.Date(2028, 2, 1, 0, 0, 0, 0, time.UTC)
	l := weir.CalendarAt(t, &now)
	weir.MustRun(t, l.Calendar(weir.Month, nil), &weir.Request{Key: "k", Limit: 9})
	now = time.Date(2028, 2, 29, 23, 59, 59, 0, time.UTC)
	assert.Zero(t, l.Sweep())
	now = now.Add(time.Second + time.Nanosecond)
	assert.Equal(t, 1, l.Sweep())
}

func TestCalendarSurvivesARestart(t *testing.T) {
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	first, second := weir.CalendarAt(t, &now), weir.CalendarAt(t, &now)
	calendars := func(l *weir.Limiter) []weir.Strategy {
		return []weir.Strategy{
			l.Calendar(weir.Month.From(17), zone(t, "America/New_York")), l.Calendar(weir.Year, nil),
			l.Calendar(weir.Day.At(6*time.Hour), zone(t, "Europe/Berlin")),
			l.Calendar(weir.Hour, time.FixedZone("own", 1234)), l.FixedWindow(),
		}
	}
	run := func(l *weir.Limiter, i int) uint64 {
		return weir.MustRun(t, calendars(l)[i], &weir.Request{Key: "k", Limit: 99, Duration: time.Hour,
			Cost: uint64(i + 1)}).TotalRequests
	}
	var saved bytes.Buffer
	for i := range calendars(first) {
		run(first, i)
	}
	require.NoError(t, first.Save(&saved))
	second.Calendar(weir.Day, nil) // has the place in second that the first calendar has in first
	for range 2 {
		require.NoError(t, second.Load(bytes.NewReader(saved.Bytes())))
	}
	for i := range calendars(second) {
		assert.EqualValues(t, 2*(i+1), run(second, i))
	}
	now = now.AddDate(1, 0, 0)
	third := weir.CalendarAt(t, &now)
	require.NoError(t, third.Load(bytes.NewReader(saved.Bytes())), "an old snapshot")
	assert.EqualValues(t, 1, run(third, 0))
}

const calendarLimit = 700

// admittedInHours has 8 callers run s for 2 keys while the clock passes through 6 hours of a night,
// and returns how much it admitted in each, by its end, and the ends of those that passed whole.
func admittedInHours(
	t *testing.T, of func(*weir.Calendar) func(*weir.Request) (*weir.Result, error),
) (admitted map[int64]int, whole []int64) {
	const callers, each, hours = 8, 2000, 6
	var clock atomic.Int64
	start := time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC) // Berlin sets its clocks in it
	l := weir.MustNew(t, weir.Config{Now: func() time.Time { return start.Add(time.Duration(clock.Load())) }})
	run := of(l.Calendar(weir.Hour, zone(t, "Europe/Berlin")))
	var mu sync.Mutex
	admitted = map[int64]int{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				clock.Add(int64(hours * time.Hour / (callers * each)))
				res, err := run(&weir.Request{Key: fmt.Sprint("k", rnd.IntN(2)), Limit: calendarLimit})
				if assert.NoError(t, err) && res.Allowed() {
					mu.Lock()
					admitted[res.ExpiresAt.Unix()]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for hour := range int64(hours) {
		whole = append(whole, start.Unix()+3600*(hour+1))
	}
	return admitted, whole
}

// In each window exactly the limit is admitted to concurrent callers, while the clock passes from
// window to window.
func TestCalendarIsExactForConcurrentCallers(t *testing.T) {
	admitted, whole := admittedInHours(t, func(c *weir.Calendar) func(*weir.Request) (*weir.Result, error) {
		return func(r *weir.Request) (*weir.Result, error) { return c.Run(context.Background(), r) }
	})
	for _, end := range whole {
		assert.Equal(t, 2*calendarLimit, admitted[end], "%v", time.Unix(end, 0))
		delete(admitted, end)
	}
	for end, n := range admitted { // the one that begins at the end
		assert.LessOrEqual(t, n, 2*calendarLimit, "%v", time.Unix(end, 0))
	}
}

func TestCalendarIsExactControlIsRejected(t *testing.T) {
	admitted, whole := admittedInHours(t, func(c *weir.Calendar) func(*weir.Request) (*weir.Result, error) {
		return func(r *weir.Request) (*weir.Result, error) { // looks first, and counts then
			res, err := ops.Peek(context.Background(), c, r)
			if runtime.Gosched(); err == nil && res.Allowed() {
				err = ops.Charge(context.Background(), c, r)
			}
			return res, err
		}
	})
	exact := true
	for _, end := range whole {
		exact = exact && admitted[end] == 2*calendarLimit
	}
	assert.False(t, exact)
}

func TestCalendarChecksItsArguments(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	for _, u := range []weir.CalendarUnit{
		0, 6, -1, weir.Day.From(1), weir.Week.From(8), weir.Month.From(32), weir.Month.From(-1),
		weir.Year.From(230),
	} {
		assert.Error(t, u.Check(), "%d", u)
		assert.Panics(t, func() { l.Calendar(u, nil) })
	}
	for _, u := range []weir.CalendarUnit{weir.Hour, weir.Day, weir.Week.From(7), weir.Month.From(31),
		weir.Year.From(229),
		weir.Month.From(0)} {
		assert.NoError(t, u.Check(), "%d", u)
	}
	s := l.Calendar(weir.Month.From(17), nil)
	assert.Equal(t, "month:17", weir.Month.From(17).String())
	assert.Equal(t, "calendar", weir.CounterOf(s).About().Name)
	assert.Equal(t, 31*24*time.Hour, s.About().Window)
	for _, key := range []string{"", strings.Repeat("k", weir.MaxID+1)} {
		_, err := s.Run(context.Background(), &weir.Request{Key: key, Limit: 1})
		assert.ErrorIs(t, err, weir.ErrID)
		_, err = s.Inspect(key)
		assert.ErrorIs(t, err, weir.ErrID)
	}
	require.NoError(t, l.Close())
	_, err = s.Run(context.Background(), &weir.Request{Key: "k", Limit: 1})
	assert.ErrorIs(t, err, weir.ErrClosed)
	_, err = s.Inspect("k")
	assert.ErrorIs(t, err, weir.ErrClosed)
}

// Also of an ID that the decision without a lock does not take, and after a denial.
func TestCalendarIsInspectedGivenBackAndReserved(t *testing.T) {
	now := time.Date(2026, 10, 25, 12, 0, 0, 0, zone(t, "Europe/Berlin"))
	start, end := now.Add(-13*time.Hour), now.Add(12*time.Hour)
	s := weir.CalendarAt(t, &now).Calendar(weir.Day, now.Location())
	for _, key := range []string{"k", strings.Repeat("long", 100)} {
		b, err := s.Inspect(key)
		require.NoError(t, err)
		empty := weir.Bucket{
			ID: key, Scale: 25 * time.Hour, Calendar: "day@Europe/Berlin", Number: end.Unix(), Ends: end,
		}
		assert.Equal(t, empty, b)

		r := &weir.Request{Key: key, Limit: 10, Cost: 4}
		first := weir.MustRun(t, s, r)
		_, giveBack, err := ops.Admit(context.Background(), s, r)
		require.NoError(t, err)
		denied := weir.MustPeek(t, s, r)
		assert.Equal(t, weir.Result{TotalRequests: 8, ExpiresAt: end}, *denied)
		weir.MustRun(t, s, r)
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 8, b.Count)
		assert.EqualValues(t, 1, b.Denied)
		assert.WithinDuration(t, now, b.Created, time.Microsecond)
		assert.True(t, b.Ends.Add(-b.Scale).Equal(start))

		require.NoError(t, ops.Refund(context.Background(), s, r, first))
		require.NoError(t, giveBack(context.Background(), 3))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 1, b.Count)

		require.NoError(t, ops.Charge(context.Background(), s, r))
		require.NoError(t, ops.Seed(context.Background(), s, r, &weir.Result{TotalRequests: 7, ExpiresAt: end}))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.EqualValues(t, 7, b.Count)

		require.NoError(t, ops.Reset(context.Background(), s, r))
		b, err = s.Inspect(key)
		require.NoError(t, err)
		assert.Equal(t, empty, b)
	}
	last := weir.MustRun(t, s, &weir.Request{Key: "k", Limit: 10})
	now = end
	require.NoError(t, ops.Refund(context.Background(), s, &weir.Request{Key: "k", Limit: 10}, last),
		"it has ended")
	b, err := s.Inspect("k")
	require.NoError(t, err)
	assert.Zero(t, b.Count)
	assert.Equal(t, 24*time.Hour, b.Scale)
}

// The Duration of a limit by a Calendar is that of its windows, whatever NewLimit is given.
func TestALimitOfACalendarLastsAsLongAsItsWindows(t *testing.T) {
	m, err := weir.NewLimit(weir.MustNew(t, weir.Config{}).Calendar(weir.Day, nil), 3, time.Hour)
	require.NoError(t, err)
	n, d := m.Numbers()
	assert.EqualValues(t, 3, n)
	assert.Equal(t, 24*time.Hour, d)
}

// An Op that is used again says nothing of the one before.
func TestAnOpThatIsUsedAgainForgets(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	waits, windows := l.LeakyBucket(5).Limit(10, time.Second), l.FixedWindow().Limit(3, time.Minute)
	op := &weir.Op{Full: true, Request: weir.Request{Key: "a"}}
	require.NoError(t, weir.Do(t.Context(), waits, op))
	for range 4 {
		require.NoError(t, weir.Do(t.Context(), windows, op))
	}
	out := windows.Outcome(t.Context(), op)
	assert.False(t, out.Allowed())
	assert.Zero(t, out.Left)
}

// An Op that is used again, and fails, has no decision: not the one before either.
func TestAnOpThatFailsHasNoDecision(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	for name, row := range map[string]struct {
		s    weir.Strategy
		verb weir.Verb
	}{
		"a fixed window":       {s: l.FixedWindow()},
		"another one on slots": {s: l.SlidingWindow()},
		"one on states":        {s: l.SlidingLog()},
		"a hold":               {s: l.InFlight(), verb: weir.OpHold},
	} {
		op := &weir.Op{Verb: row.verb, Request: weir.Request{Key: "a", Limit: 3, Duration: time.Minute}}
		require.NoError(t, weir.Do(t.Context(), row.s, op), name)
		assert.True(t, op.Result.Allowed(), name)
		assert.Equal(t, weir.FromLocal, op.Source, name)
		op.Key, op.Left = "", time.Hour
		require.ErrorIs(t, weir.Do(t.Context(), row.s, op), weir.ErrID, name)
		assert.Zero(t, op.Result, name)
		assert.Zero(t, op.Left, name)
		assert.Equal(t, weir.Nowhere, op.Source, name)
	}
}

// A Request is decided as a fixed window does that has counted so much.
func TestARequestIsDecidedByItsCount(t *testing.T) {
	end := time.Unix(60, 0)
	const most = math.MaxInt64
	for name, row := range map[string]struct {
		limit, cost, counted, total uint64
		state                       weir.State
		never                       bool
	}{
		"the last one":            {limit: 3, counted: 2, total: 3, state: weir.Allow},
		"nothing is left":         {limit: 3, counted: 3, total: 3},
		"the limit has fallen":    {limit: 3, counted: 9, total: 9},
		"too little is left":      {limit: 3, cost: 2, counted: 2, total: 2},
		"a cost over the limit":   {limit: 3, cost: 4, never: true},
		"a limit of 0":            {never: true},
		"the largest limit":       {limit: math.MaxUint64, cost: most, counted: 1, total: 1},
		"a cost over the largest": {limit: math.MaxUint64, cost: most + 1, never: true},
	} {
		want := weir.Result{State: row.state, TotalRequests: row.total, ExpiresAt: end}
		if row.never {
			want.ExpiresAt = time.Time{}
		}
		r := weir.Request{Limit: row.limit, Cost: row.cost}
		assert.Equal(t, want, r.Decide(row.counted, end), name)
	}
}

// A Counter by a function gives it what it can do, and good Requests.
func TestACounterByAFunction(t *testing.T) {
	admitted := weir.Result{State: weir.Allow, TotalRequests: 1}
	good := weir.Request{Key: "k", Limit: 3, Duration: time.Second}
	short := weir.Request{Key: "k", Limit: 3}
	for name, row := range map[string]struct {
		op     weir.Op
		bound  bool
		period string
		err    error
		idle   bool // the function has nothing to do
	}{
		"a hit":               {op: weir.Op{Request: good}},
		"another verb":        {op: weir.Op{Verb: weir.OpPeek, Request: good}, err: errors.ErrUnsupported},
		"a Receipt is wanted": {op: weir.Op{Request: good, Keep: true}, err: errors.ErrUnsupported},
		"a hit after a backlog": {op: weir.Op{Request: good, Backlog: new(weir.Backlog)},
			err: errors.ErrUnsupported},
		"a backlog":      {op: weir.Op{Verb: weir.OpCatchUp, Request: good, Backlog: new(weir.Backlog)}},
		"a bad key":      {op: weir.Op{}, err: weir.ErrID},
		"a bad Duration": {op: weir.Op{Request: short}, err: weir.ErrScale},
		"a limit's own":  {op: weir.Op{Request: short}, bound: true},
		"a calendar's":   {op: weir.Op{Request: short}, period: "day"},
		"all keys":       {op: weir.Op{Verb: weir.OpResetPrefix}},
		"an admission":   {op: weir.Op{Verb: weir.OpReturn, Request: good, Result: admitted}},
		"a denial":       {op: weir.Op{Verb: weir.OpReturn, Request: good}, idle: true},
		"a cost over the limit": {op: weir.Op{Verb: weir.OpReturn, Request: costing(good, 4),
			Result: admitted}, idle: true},
		"a cost over another limit": {op: weir.Op{Verb: weir.OpReturn, Request: costing(good, 4),
			Result: admitted}, bound: true},
	} {
		t.Run(name, func(t *testing.T) {
			done := false
			about := weir.About{Bound: row.bound, Period: row.period, Verbs: weir.VerbsOf(weir.OpTake,
				weir.OpReturn, weir.OpResetPrefix, weir.OpCatchUp)}
			c := weir.NewCounter(about, func(_ context.Context, op *weir.Op) {
				done = true
				assert.NoError(t, op.Err)
				assert.Equal(t, weir.FromLocal, op.Source)
				assert.Zero(t, op.Left)
				assert.Zero(t, op.FullAt)
			})
			assert.Same(t, c, weir.CounterOf(c))
			assert.Same(t, c, c.About().Counts)
			assert.Equal(t, "a Counter without a Name", c.About().String())
			about.Store, about.Counts, about.Name = "db", "hits", "a map"
			shared := weir.NewCounter(about, nil).About()
			assert.Nil(t, shared.Store, "it does no ops of others")
			assert.Equal(t, "hits", shared.Counts)
			assert.Equal(t, "a map", shared.String())
			op := row.op
			op.Err, op.FullAt, op.Left = errors.New("of the op before"), time.Now(), time.Hour
			assert.ErrorIs(t, weir.Do(t.Context(), c, &op), row.err)
			assert.Equal(t, row.err == nil && !row.idle, done)
		})
	}
}
