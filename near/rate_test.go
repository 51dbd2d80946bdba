package near_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// A lease of a token bucket keeps what was used, in tokens, when the rate changes: its block counts
// as used.
func TestLeaseEndsWithTheRate(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	l := limiterOn(t, clock.Now)
	lease := near.NewLeases(l.TokenBucket(10), near.LeaseConfig{Block: 5, Now: clock.Now})
	run := func(limit uint64) bool {
		res, err := lease.Run(context.Background(),
			&weir.Request{Key: "a", Limit: limit, Duration: time.Minute})
		require.NoError(t, err)
		return res.Allowed()
	}
	require.True(t, run(1))
	leased := lease.Stats().Leased
	require.True(t, run(1))
	require.Equal(t, leased+1, lease.Stats().Leased, "of the block")
	require.True(t, run(600), "the block is over")
	require.Equal(t, leased+1, lease.Stats().Leased)
	// The tokens of the first block flow in soon at the higher rate, and are not there twice.
	clock.Advance(time.Second)
	admitted := 0
	for range 30 {
		if run(1) {
			admitted++
		}
	}
	assert.LessOrEqual(t, admitted, 10)
	assert.GreaterOrEqual(t, admitted, 9)
}

// Denials of one rate do not hold at another.
func TestDenialsKeepWhatWasUsedWhenTheRateChanges(t *testing.T) {
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(func(burst uint64, now func() time.Time) weir.Strategy {
			return near.NewDenials(limiterOn(t, now).TokenBucket(burst), near.DenialsConfig{Now: now})
		}))
	}
}
