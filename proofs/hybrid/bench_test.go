package hybrid_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// BenchmarkHealthyCall makes calls of redislimit alone and through fallback in turns, and reports
// the median of what a call through fallback takes longer.
func BenchmarkHealthyCall(b *testing.B) {
	server := redistest.Start(b).Addr
	alone := storeAt(b, server, redislimit.Config{Timeout: time.Second}).FixedWindow()
	behind := hybridAt(b, server, fallback.Config{Timeout: time.Second})
	ctx := context.Background()
	r := weir.Request{Key: "a", Limit: 1 << 40, Duration: 365 * 24 * time.Hour}
	for name, s := range map[string]weir.Strategy{"alone": alone, "fallback": behind} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Run(ctx, &r)
				require.NoError(b, err)
			}
		})
	}
	b.Run("interleaved", func(b *testing.B) {
		var took [2][]time.Duration
		for n := 0; b.Loop(); n++ {
			for k := range 2 {
				i := (k + n) % 2 // each comes first every other time
				start := time.Now()
				_, err := []weir.Strategy{alone, behind}[i].Run(ctx, &r)
				took[i] = append(took[i], time.Since(start))
				require.NoError(b, err)
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		n := len(took[0])
		b.ReportMetric(float64(took[0][n/2]), "ns-alone")
		b.ReportMetric(float64(took[1][n/2]-took[0][n/2]), "ns-more")
		require.GreaterOrEqual(b, behind.Stats().Primary, uint64(n), "local decided")
	})
}
