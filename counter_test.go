package weir_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

func ExampleLimiter_Counter() {
	clock := noon()
	limiter := limiterAt(clock)
	defer limiter.Close()

	s := limiter.Counter() // the period begins with the first hit
	clock.Advance(40 * time.Second)
	verdicts(s, 3, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	clock.Advance(59 * time.Second)
	verdicts(s, 1, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	clock.Advance(time.Second)
	verdicts(s, 1, weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute})
	// Output:
	// [Allow Allow Deny]
	// [Deny]
	// [Allow]
}

func ExampleLimiter_List() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	s := limiter.List()
	r := &weir.Request{Key: "10.0.0.7", Limit: 2, Duration: time.Minute}
	for _, r.Meta = range []string{"alice", "bob", "carol"} {
		if _, err := s.Run(context.Background(), r); err != nil {
			log.Fatal(err)
		}
	}
	entries, err := ops.Hits(context.Background(), s, r)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Meta)
	}
	// Output:
	// alice
	// bob
}

func ExampleNewCounterStrategy() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	verdicts(weir.NewCounterStrategy(limiter), 3, weir.Request{Key: "some-user", Limit: 2,
		Duration: time.Minute})
	verdicts(weir.NewSortedSetCounterStrategy(limiter), 3, weir.Request{Key: "some-user", Limit: 2,
		Duration: time.Minute})
	// Output:
	// [Allow Allow Deny]
	// [Allow Allow Deny]
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
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 4, ExpiresAt: end.Add(time.Second)}))
			res := weir.MustRun(t, s, r)
			assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 10, ExpiresAt: end}, res)
			clock.Set(end.Add(-1))
			require.NoError(t, ops.Charge(t.Context(), s, r))
			assert.Equal(t, uint64(11), weir.Counted(t, s, r))
			clock.Set(end)
			assert.Equal(t, uint64(0), weir.Counted(t, s, r))
			require.NoError(t, ops.Seed(t.Context(), s, r, &weir.Result{TotalRequests: 3, ExpiresAt: end.Add(time.Hour)}))
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
