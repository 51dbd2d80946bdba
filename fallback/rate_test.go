package fallback_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
)

// Through a Fallback rates that change at random do what they do without.
func TestTokenBucketEqualsItsModelWhenTheRateChanges(t *testing.T) {
	source := func(burst uint64, now func() time.Time) weir.Strategy {
		return newFallback(t, limiterOn(t, now).TokenBucket(burst), limiterOn(t, now).TokenBucket(burst),
			fallback.Config{Now: now, Timeout: time.Minute})
	}
	for _, row := range verbtest.RateRows {
		assert.NoError(t, row.Play(source))
	}
	require.NoError(t, verbtest.RateDifferences(source, 1, slow.N(5_000, 100_000, 1_000_000)))
}

// What primary counted before an outage stays used there, in tokens, when the rate changes in it,
// and what local admitted stays used afterwards.
func TestRateThatChangesInAnOutageKeepsWhatWasUsed(t *testing.T) {
	for _, row := range []struct {
		name  string
		rates [2]uint64 // before and after the outage, and in it
	}{
		{"a raised rate", [2]uint64{10, 1000}},
		{"a lowered rate", [2]uint64{600, 6}},
		{"the same rate", [2]uint64{10, 10}},
	} {
		f := newFleet(t, 1, func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(20) }, tripAtOnce,
			chargingFront)
		run := func(n int, limit uint64) (admitted int) {
			for range n {
				res, _ := ask(t, f.instances[0], weir.Request{Key: "a", Limit: limit, Duration: time.Hour})
				admitted += int(res.State)
			}
			return admitted
		}
		require.Equal(t, 15, run(15, row.rates[0]), row.name)
		f.server.fails(errDown)
		assert.Equal(t, 5, run(30, row.rates[1]), "%s: the rest of the burst", row.name)
		f.heal(t)
		assert.Zero(t, run(30, row.rates[0]), row.name)
	}
}
