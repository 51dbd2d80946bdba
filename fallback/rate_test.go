package fallback_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
)

// bucketsBehind returns token buckets behind a Fallback, whose primary fails while down is set.
func bucketsBehind(t testing.TB, down *atomic.Bool) verbtest.Buckets {
	return func(burst uint64, now func() time.Time) weir.Strategy {
		var buckets [2]*weir.TokenBucket
		for i := range buckets {
			l, err := weir.New(weir.Config{Now: now})
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			buckets[i] = l.TokenBucket(burst)
		}
		f, err := fallback.New(unreliable{buckets[0], down}, buckets[1],
			fallback.Config{Now: now, Timeout: time.Minute})
		require.NoError(t, err)
		return f
	}
}

// unreliable is a token bucket that fails while down is set.
type unreliable struct {
	*weir.TokenBucket
	down *atomic.Bool
}

func (f unreliable) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if f.down.Load() {
		return nil, errors.New("down")
	}
	return f.TokenBucket.Run(ctx, r)
}

// Through a Fallback rates that change at random do what they do without.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	source := bucketsBehind(t, new(atomic.Bool))
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(source))
	}
	require.NoError(t, verbtest.RateDifferences(source, 1, slow.N(20_000, 100_000, 1_000_000)))
}

// What primary counted before an outage stays used there, in tokens, when the rate changes in it,
// and what local admitted stays used afterwards.
func TestRateThatChangesInAnOutageKeepsWhatWasUsed(t *testing.T) {
	for _, row := range []struct {
		name     string
		rates    [2]uint64 // before the outage, and in it
		admitted int       // in it, of a burst of 20 of which 15 are used
		after    int       // after it, at the first rate
	}{
		{"a raised rate", [2]uint64{10, 1000}, 5, 0},
		{"a lowered rate", [2]uint64{600, 6}, 5, 0},
		{"the same rate", [2]uint64{10, 10}, 5, 0},
	} {
		var down atomic.Bool
		now := time.Unix(1_700_000_000, 0)
		s := bucketsBehind(t, &down)(20, func() time.Time { return now })
		run := func(n int, limit uint64) (admitted int) {
			for range n {
				res, err := s.Run(t.Context(), &weir.Request{Key: "a", Limit: limit, Duration: time.Hour})
				require.NoError(t, err)
				admitted += int(res.State)
			}
			return admitted
		}
		require.Equal(t, 15, run(15, row.rates[0]), row.name)
		down.Store(true)
		assert.Equal(t, row.admitted, run(30, row.rates[1]), row.name)
		down.Store(false)
		now = now.Add(time.Second) // the breaker probes again
		assert.Equal(t, row.after, run(30, row.rates[0]), row.name)
	}
}
