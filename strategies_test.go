package weir_test

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
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
		require.NoError(t, ops.Seed(context.Background(), s, r, &weir.Result{ExpiresAt: clock.Now().Add(time.Second)}))
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
