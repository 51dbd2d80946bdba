package doortest

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
)

// InFlight returns s, which bounds work in flight, in each way to give it to a door that does not
// see the end of work.
func InFlight(t testing.TB, l *weir.Limiter, s weir.Strategy) map[string]weir.Strategy {
	hybrid, err := fallback.New(s, l.InFlight(), fallback.Config{})
	require.NoError(t, err)
	strategies := map[string]weir.Strategy{"it": s, "it, wrapped": ops.Around(s),
		"it behind fallback": hybrid, "it behind near": near.NewDenials(s, near.DenialsConfig{})}
	ways := maps.Clone(strategies)
	for name, of := range strategies {
		m, err := weir.NewLimit(of, 20, time.Minute)
		require.NoError(t, err, name)
		ways["a limit of "+name] = m
		ways["a named limit of "+name] = m.Named("jobs")
		ways["one of limits.All, of "+name] = limits.All(l.SlidingWindow().Limit(100, time.Minute), m)
	}
	return ways
}

// RefusesInFlight checks that build panics, or fails, with a text that names setting, if it is
// given a limit on work in flight, in each way.
func RefusesInFlight(
	t *testing.T, setting string, build func(s weir.Strategy, cfg httplimit.Config) error,
) {
	limiter, _ := NewLimiter(t)
	for name, s := range InFlight(t, limiter, limiter.InFlight()) {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Name: "jobs"}
		if _, limit := s.(*weir.Limit); !limit {
			cfg.Limit, cfg.Duration = 20, time.Minute
		}
		refusal := func() (text any) {
			defer func() {
				if mistake := recover(); mistake != nil {
					text = mistake
				}
			}()
			if err := build(s, cfg); err != nil {
				return err.Error()
			}
			return nil
		}()
		assert.Contains(t, refusal, setting, name)
		assert.Contains(t, refusal, "work in flight", name)
	}
}
