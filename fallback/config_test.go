package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The default Interval grows with Timeout: failures of slow calls are far apart.
func TestBreakerOpensWithALongTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{DefaultTimeout, time.Second, 10 * time.Second} {
		cfg, err := Config{Timeout: timeout}.withDefaults()
		require.NoError(t, err)
		now := time.Unix(100, 0)
		b := newBreaker(cfg, "", now)
		opened := false
		for end := now.Add(3*timeout + 2*time.Second); now.Before(end); now = now.Add(timeout / 4) {
			opened = opened || b.Record(now, errTimeout) != nil
		}
		assert.True(t, opened, "timeout %v", timeout)
	}
}
