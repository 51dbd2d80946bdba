package weir_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
)

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
