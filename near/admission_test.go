package near_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// Through leases and denials a Return reaches its admission, and nothing else.
func TestReturns(t *testing.T) {
	for name, wrapped := range map[string]func(weir.Strategy, *weirtest.Clock) weir.Strategy{
		"lease": func(s weir.Strategy, clock *weirtest.Clock) weir.Strategy {
			return near.NewLeases(s, near.LeaseConfig{Block: 4, Skew: -1, Now: clock.Now})
		},
		"denials": func(s weir.Strategy, clock *weirtest.Clock) weir.Strategy {
			return near.NewDenials(s, near.DenialsConfig{Skew: -1, Now: clock.Now})
		},
	} {
		for kind, of := range map[string]func(*weir.Limiter) weir.Strategy{
			"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
			"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				clock := weirtest.NewClock(time.Unix(1_700_000_040, 0))
				s := wrapped(of(limiterOn(t, clock.Now)), clock)
				admit := func(cost uint64) (*weir.Result, ops.Return) {
					res, giveBack, err := ops.Admit(t.Context(), s, &weir.Request{Key: "a", Limit: 20, Duration: time.Minute, Cost: cost})
					require.NoError(t, err)
					return res, giveBack
				}
				var returns []ops.Return
				for range 5 { // the first is passed on, and of a fixed window the others are leased
					res, giveBack := admit(2)
					require.True(t, res.Allowed())
					returns = append(returns, giveBack)
				}
				for _, giveBack := range returns {
					require.NoError(t, giveBack(t.Context(), 1))
					require.NoError(t, giveBack(t.Context(), 5), "no more than was taken")
				}
				res, all := admit(20)
				require.True(t, res.Allowed(), "everything was given back")
				for range 2 { // the second denial may be a repeated one
					res, none := admit(1)
					require.False(t, res.Allowed())
					require.NoError(t, none(t.Context(), 1))
				}
				require.NoError(t, ops.Reset(t.Context(), s, &weir.Request{Key: "a", Limit: 20,
					Duration: time.Minute}))
				res, last := admit(20)
				require.True(t, res.Allowed())
				require.NoError(t, all(t.Context(), 20))
				res, _ = admit(1)
				assert.False(t, res.Allowed(), "the first was reset")
				require.NoError(t, last(t.Context(), 3))
				res, _ = admit(3)
				assert.True(t, res.Allowed(), "no denial is repeated")
			})
		}
	}
}

// What the wrapped strategy cannot give back, the cache does not admit for a Receipt either.
func TestAdmitWithoutAReturn(t *testing.T) {
	clock, server := minute(t)
	r := weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
	none := near.NewDenials(struct{ weir.Strategy }{server}, near.DenialsConfig{Now: clock.Now})
	_, giveBack, err := ops.Admit(t.Context(), none, &r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Nil(t, giveBack)
	assert.Zero(t, server.calls.Load())
}

// A Receipt names its admission by itself, from a lease too.
func TestReturnByAReceiptAlone(t *testing.T) {
	clock, server := minute(t)
	l := near.NewLeases(server, near.LeaseConfig{Block: 10, Skew: -1, Now: clock.Now})
	for range 2 { // the second is of the lease
		taken := ops.Do(t.Context(), l, weir.Op{Request: hundred, Keep: true})
		require.NoError(t, taken.Err)
		require.EqualValues(t, 1, taken.Result.TotalRequests)
		back := ops.Do(t.Context(), l, weir.Op{Verb: weir.OpReturn, Request: hundred,
			Receipt: taken.Receipt})
		require.NoError(t, back.Err)
		assert.Zero(t, back.Receipt.Cost, "all was given back")
	}
	assert.EqualValues(t, 1, l.Stats().Leased)
}
