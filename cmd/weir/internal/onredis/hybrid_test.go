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
	s, err := Open(Config{URL: "redis://127.0.0.1:1", Fallback: fallback.Config{Instances: 3}},
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer s.Close()
	var got uint64
	hybrid := s.Strategies(func(m rules.Method) (weir.Strategy, error) {
		got = m.Burst
		return rules.StrategiesOf(limiter)(m)
	})
	for burst, part := range map[uint64]uint64{0: 0, 1: 1, 3: 1, 4: 2, 100: 34} {
		_, err := hybrid(rules.Method{Algorithm: rules.TokenBucket, Burst: burst})
		require.NoError(t, err)
		assert.Equal(t, part, got)
	}
	var names []string
	for _, h := range s.Hybrids() {
		names = append(names, h.Name)
	}
	assert.Contains(t, names, "token bucket, burst 4")
	assert.Contains(t, names, "token bucket")
}
