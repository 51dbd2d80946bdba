package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir/internal/breaker"
)

// The default Interval grows with Timeout: failures of slow calls are far apart.
func TestBreakerOpensWithALongTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{DefaultTimeout, time.Second, 10 * time.Second} {
		cfg, err := Config{Timeout: timeout}.withDefaults()
		require.NoError(t, err)
		now := time.Unix(100, 0)
		b := breaker.New(cfg.server().Config, "", now)
		opened := false
		for end := now.Add(3*timeout + 2*time.Second); now.Before(end); now = now.Add(timeout / 4) {
			opened = opened || b.Record(now, breaker.ErrTimeout) != nil
		}
		assert.True(t, opened, "timeout %v", timeout)
	}
}
