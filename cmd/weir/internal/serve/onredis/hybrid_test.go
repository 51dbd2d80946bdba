package onredis

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit/redistest"
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

// A Redis that evicts keys is worth a warning at the start, if the user may ask for it.
func TestPingWarnsOfEviction(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"keeps all":     {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}, ""},
		"has no bound":  {[]string{"--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"}, ""},
		"evicts":        {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, "allkeys-lru"},
		"evicts limits": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, "volatile-ttl"},
		"may not ask": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru",
			"--rename-command", "INFO", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s, err := Open(Config{URL: "redis://" + redistest.Start(t, row.args...).Addr},
				slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			defer s.Close()
			s.Ping(t.Context(), "local")
			if row.want == "" {
				assert.Empty(t, log.String())
				return
			}
			assert.Contains(t, log.String(), "level=WARN")
			assert.Contains(t, log.String(), row.want)
		})
	}
}
