package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
)

func forecasters(l *weir.Limiter) map[string]weir.Strategy {
	return map[string]weir.Strategy{
		"fixed window": l.FixedWindow(), "counter": l.Counter(), "list": l.List(),
		"sliding window": l.SlidingWindow(), "token bucket": l.TokenBucket(0),
		"small token bucket": l.TokenBucket(7), "large token bucket": l.TokenBucket(50),
	}
}

// peekMore is what Forecast saves: a look at a request for one more than is left. Its denial names
// the instant.
func peekMore(t *testing.T, s weir.Strategy, r weir.Request, admitted *weir.Result) time.Time {
	limit := r.Limit
	if burst := weir.CounterOf(s).About().Burst; burst > 0 {
		limit = burst
	}
	r.Cost = admitted.Remaining(limit) + 1
	res := weir.MustPeek(t, s, &r)
	require.False(t, res.Allowed(), "one more than is left")
	return res.ExpiresAt
}

func TestForecastIsWhatAPeekFinds(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for name, s := range forecasters(l) {
		rnd := rand.New(rand.NewPCG(21, 22))
		for range 3000 {
			clock.Advance(time.Duration(rnd.Int64N(300)) * time.Millisecond / 7)
			r := weir.Request{
				Key:      fmt.Sprintf("a caller with a number: %d", rnd.IntN(3)), // a long one, too
				Limit:    1 + rnd.Uint64N(30),
				Duration: time.Duration(1+100*rnd.IntN(3)) * time.Millisecond,
				Cost:     rnd.Uint64N(9),
			}
			res := weir.MustRun(t, s, &r)
			if !res.Allowed() {
				continue
			}
			more, err := ops.Forecast(context.Background(), s, &r, res)
			require.NoError(t, err)
			require.True(t, peekMore(t, s, r, res).Equal(more), "%s, %+v: %+v, forecast %v", name, r, res,
				more)
		}
	}
}

func TestForecastKnowsWhatItCannotSay(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	r := &weir.Request{Key: "a", Limit: 10, Duration: time.Second}
	for name, s := range forecasters(l) {
		more, err := ops.Forecast(context.Background(), s, r, &weir.Result{State: weir.Allow})
		require.NoError(t, err)
		assert.Zero(t, more, "%s: nothing was taken", name)
	}
	s, end := l.SlidingWindow(), clock.Now().Add(2*time.Second)
	taken := &weir.Result{State: weir.Allow, TotalRequests: 3, ExpiresAt: end}
	more, err := ops.Forecast(context.Background(), s, r, taken)
	require.NoError(t, err)
	assert.Equal(t, end, more, "nothing is counted any more")
	weir.MustRun(t, s, r)
	more, err = ops.Forecast(context.Background(), s, r, taken)
	require.NoError(t, err)
	assert.Equal(t, end, more, "less is counted than there was")
	for _, s := range []weir.Strategy{s, l.TokenBucket(0)} {
		_, err = ops.Forecast(context.Background(), s, &weir.Request{Limit: 10, Duration: time.Second}, taken)
		assert.ErrorIs(t, err, weir.ErrID)
	}
}

func TestForecastAllocatesNothing(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	ctx, r := context.Background(), &weir.Request{Key: "a", Limit: 1000, Duration: time.Second}
	for name, s := range forecasters(l) {
		c := weir.CounterOf(s)
		op := &weir.Op{Counter: c, Verb: weir.OpForecast, Request: *r, Result: *weir.MustRun(t, s, r)}
		list := []*weir.Op{op}
		assert.Zero(t, testing.AllocsPerRun(100, func() { c.Do(ctx, list) }), name)
		assert.NotZero(t, op.More, name)
	}
}
