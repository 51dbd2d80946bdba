package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// Through a Fallback on Redis rates that change at random do what they do in memory.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	o, made := redislimit.Options(redistest.Start(t).Addr), 0
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	source := func(burst uint64, now func() time.Time) weir.Strategy {
		made++
		store, err := redislimit.New(client, redislimit.Config{Now: now, Timeout: patient,
			Prefix: fmt.Sprint(made, ":")})
		require.NoError(t, err)
		l := newLimiter(t, now)
		f := newFallback(t, store.TokenBucket(burst), l.TokenBucket(burst),
			fallback.Config{Now: now, Timeout: patient})
		return f
	}
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(source))
	}
	require.NoError(t, verbtest.RateDifferences(source, 1, slow.N(2000, 20_000, 1_000_000)))
}
