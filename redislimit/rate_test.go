package redislimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

func tokenBuckets(t testing.TB, server *redistest.Server) verbtest.Buckets {
	made := 0
	return func(burst uint64, now func() time.Time) weir.Strategy {
		made++
		return open(t, server.Addr, redislimit.Config{Now: now, Prefix: fmt.Sprint(made, ":")}).TokenBucket(burst)
	}
}

// What was used stays used, in tokens, when the rate changes.
func TestTokenBucketKeepsWhatWasUsedWhenTheRateChanges(t *testing.T) {
	source := tokenBuckets(t, redistest.Start(t))
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(source))
	}
}

// In Redis rates that change at random do what they do in memory.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	source := tokenBuckets(t, redistest.Start(t))
	require.NoError(t, verbtest.RateDifferences(source, 1, slow.N(5_000, 30_000, 1_000_000)))
}
