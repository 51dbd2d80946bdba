package weir_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/ratetest"
	"github.com/weirgo/weir/internal/slow"
)

func tokenBuckets(t testing.TB) ratetest.Source {
	return func(burst uint64, now func() time.Time) weir.Strategy {
		l, err := weir.New(weir.Config{Now: now})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.TokenBucket(burst)
	}
}

// What was used stays used, in tokens, when the rate changes.
func TestTokenBucketKeepsWhatWasUsedWhenTheRateChanges(t *testing.T) {
	rejected := 0
	for _, row := range ratetest.Rows {
		assert.NoError(t, row.Play(tokenBuckets(t)))
		if row.Play(ratetest.Forgetful) != nil {
			rejected++
		}
	}
	assert.Greater(t, rejected, len(ratetest.Rows)/2, "buckets that keep no rate")
}

// Rates that change at random give nothing away, and lose no more than a nanosecond's tokens with
// each change.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	require.NoError(t, ratetest.Differences(tokenBuckets(t), 1, slow.N(100_000, 100_000, 1_000_000)))
}
