package onredis

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/rules"
)

// TestHybridDividesTheBurst makes strategies for one of three processes.
func TestHybridDividesTheBurst(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	got := map[string]uint64{}
	source := func(side string) rules.Strategies {
		return func(m rules.Method) (weir.Strategy, error) {
			got[side] = m.Burst
			return rules.StrategiesOf(limiter)(m)
		}
	}
	var names []string
	hybrid := Strategies(source("remote"), source("local"), fallback.Config{Instances: 3},
		slog.New(slog.DiscardHandler),
		func(name string, _ *fallback.Fallback) { names = append(names, name) })
	for burst, part := range map[uint64]uint64{0: 0, 1: 1, 3: 1, 4: 2, 100: 34} {
		_, err := hybrid(rules.Method{Algorithm: rules.TokenBucket, Burst: burst})
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"remote": burst, "local": part}, got)
	}
	assert.Contains(t, names, "token bucket, burst 4")
	assert.Contains(t, names, "token bucket")
}
