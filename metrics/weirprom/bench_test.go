package weirprom_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics/weirprom"
)

// BenchmarkHooks is what a request and a call of the primary cost more with metrics, beside a
// decision on a busy key.
func BenchmarkHooks(b *testing.B) {
	b.Run("CheckRate", func(b *testing.B) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(b, err)
		defer limiter.Close()
		for b.Loop() {
			_, _ = limiter.CheckRate("10.0.0.7", 3_600_000, 1<<40)
		}
	})
	b.Run("OnDecision", func(b *testing.B) {
		d := weirprom.NewDecisions("edge")
		b.ReportAllocs()
		for b.Loop() {
			d.OnDecision(nil, httplimit.Decision{Policy: "per key", Kind: httplimit.Admitted,
				Source: "local"})
		}
		vec, err := d.GetMetricWithLabelValues("per key", "Admitted", "local")
		require.NoError(b, err)
		require.NotNil(b, vec)
	})
	b.Run("OnCall", func(b *testing.B) {
		c := weirprom.NewCalls("edge", nil)
		b.ReportAllocs()
		for b.Loop() {
			c.OnCall(time.Millisecond, nil)
		}
	})
}
