package replay

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// TestPeaksAreExact checks that at a caller's peak nothing is denied and one below it something is.
func TestPeaksAreExact(t *testing.T) {
	for seed := range uint64(2) {
		requests := traffic(seed+20, 600)
		for form, render := range map[string]func(request) string{"common": request.common,
			"caddy": request.caddy} {
			for _, burst := range []uint64{0, 3} {
				s := &Suggest{Strategies: rule.Strategies, Burst: burst,
					Durations: []time.Duration{time.Second, 7 * time.Second, time.Hour}}
				cfg := config(t, []string{write(t, "a.log", requests, render)})
				cfg.Suggest, cfg.parts = s, 1
				r := &run{cfg: cfg, callers: newCallers(), first: 1<<62 - 1, last: -1 << 62,
					result: &Result{}}
				r.setParts()
				defer r.parts[0].close()
				require.NoError(t, r.read())
				require.NoError(t, r.decide())
				instants := instantsOf(requests, keys[ByIP], form == "common")
				for i, strategy := range s.Strategies {
					for k, d := range s.Durations {
						for n, peak := range r.parts[0].peaks[i*len(s.Durations)+k] {
							at := instants[r.callers.names[n]]
							limited := func(limit Peak) uint64 {
								l := rule.Rule{Strategy: strategy,
									Tiers: []weir.Tier{{Limit: uint64(limit), Duration: d}}}
								if l.HasBurst() {
									l.Burst = burst
								}
								return model(l, at)
							}
							if peak == NoLimit {
								require.NotZero(t, limited(Peak(d)))
								continue
							}
							require.Zero(t, limited(peak),
								"seed %d %s, burst %d: at %d/%v %s nothing is denied", seed, form, burst,
								peak, d, strategy)
							require.NotZero(t, limited(peak-1),
								"seed %d %s, burst %d: below %d/%v %s something is", seed, form, burst, peak,
								d, strategy)
						}
					}
				}
			}
		}
	}
}

func TestSuggestion(t *testing.T) {
	peaks := make([]Peak, 0, 2000)
	for i := range Peak(1000) {
		peaks = append(peaks, 1, 1000-i) // 1000 ones, and 1 to 1000
	}
	for share, want := range map[float64]Suggestion{
		0:      {Limit: 1000, Denied: 0},
		0.0004: {Limit: 1000, Denied: 0},
		0.0005: {Limit: 999, Denied: 1},
		0.001:  {Limit: 998, Denied: 2},
		0.5:    {Limit: 1, Denied: 999},
		1:      {Limit: 1, Denied: 999},
	} {
		s := &Suggest{Share: share}
		got := s.suggestion(rule.Fixed, time.Minute, slices.Clone(peaks))
		require.Equal(t, want.Limit, got.Limit, "%v", share)
		require.Equal(t, want.Denied, got.Denied, "%v", share)
		require.Equal(t, Peaks{1, 800, 980, 998, 1000}, got.Peaks)
		total := 0
		for i, b := range got.Histogram {
			total += b.Callers
			if i > 0 {
				require.Equal(t, got.Histogram[i-1].To+1, b.From)
			}
		}
		require.Equal(t, 2000, total)
		require.True(t, slices.ContainsFunc(got.Histogram, func(b PeakBin) bool {
			return b.To == got.Limit
		}), "no bin is on both sides of the limit")
	}
	got := (&Suggest{Share: 0.5, Burst: 3}).suggestion(rule.Token, time.Minute,
		[]Peak{NoLimit, NoLimit, 4})
	require.Equal(t, NoLimit, got.Limit)
	require.Equal(t, 2, got.Denied, "every limit denies two")
}
