package near_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/near"
)

// BenchmarkNear measures decisions that need no round trip.
func BenchmarkNear(b *testing.B) {
	l := limiterOn(b, nil)
	requests := make([]weir.Request, 10_000)
	for name, limit := range map[string]uint64{"lease": 1 << 40, "denial": 1} {
		b.Run(name, func(b *testing.B) {
			var s weir.Strategy = near.NewLeases(l.FixedWindow(), near.LeaseConfig{Block: 1 << 30})
			if name == "denial" {
				s = near.NewDenials(l.FixedWindow(), near.DenialsConfig{})
			}
			for n := range requests {
				requests[n] = weir.Request{Key: fmt.Sprint("caller ", n), Limit: limit,
					Duration: 24 * time.Hour}
				ask(b, s, requests[n])
				ask(b, s, requests[n])
				ask(b, s, requests[n])
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				if res, err := s.Run(b.Context(), &requests[n%len(requests)]); err != nil ||
					res.Allowed() != (limit > 1) {
					b.Fatal(res, err)
				}
			}
		})
	}
}

// BenchmarkFetch measures decisions each of which takes a block, by a call without a round trip.
func BenchmarkFetch(b *testing.B) {
	l := limiterOn(b, nil)
	s := near.NewLeases(l.FixedWindow(), near.LeaseConfig{Block: 1})
	r := weir.Request{Key: "a", Limit: 1 << 40, Duration: 365 * 24 * time.Hour}
	b.ReportAllocs()
	for n := range b.N {
		if _, err := s.Run(b.Context(), &r); err != nil {
			b.Fatal(n, err)
		}
	}
	require.EqualValues(b, b.N, s.Stats().Fetched)
}
