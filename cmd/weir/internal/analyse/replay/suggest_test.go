package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
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
				r := newRun(cfg)
				defer r.close()
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
		s := &Suggest{DenyAtMost: share}
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
	for _, most := range []Peak{1, 2, 199, 200, 201, 1000, 12345} {
		var peaks []Peak
		for i := range most {
			peaks = append(peaks, 3*i+1, 3*i+1)
		}
		peaks = append(peaks, NoLimit)
		limit := 3*(most/2) + 1
		points := curve(peaks, limit)
		require.LessOrEqual(t, len(points), maxCurve+1)
		require.GreaterOrEqual(t, len(points), min(int(most), maxCurve))
		require.Equal(t, Point{1, 2*int(most) - 1}, points[0])
		require.Equal(t, Point{3*most - 2, 1}, points[len(points)-1], "the caller that every limit denies")
		chosen := false
		for i, p := range points {
			denied := 0
			for _, peak := range peaks {
				if peak > p.Limit {
					denied++
				}
			}
			require.Equal(t, denied, p.Denied)
			require.True(t, i == 0 || p.Limit > points[i-1].Limit)
			chosen = chosen || p.Limit == limit
		}
		require.True(t, chosen)
	}
	require.Empty(t, curve([]Peak{NoLimit}, NoLimit))
	got := (&Suggest{DenyAtMost: 0.5, Burst: 3}).suggestion(rule.Token, time.Minute,
		[]Peak{NoLimit, NoLimit, 4})
	require.Equal(t, NoLimit, got.Limit)
	require.Equal(t, 2, got.Denied, "every limit denies two")
}

// TestRulesBesideSuggestions checks that suggestions are the same beside rules, limits and a
// comparison.
func TestRulesBesideSuggestions(t *testing.T) {
	file := write(t, "a.log", traffic(8, 1500), request.common)
	cfg := config(t, []string{file})
	cfg.Suggest = &Suggest{Strategies: rule.Strategies, Durations: Durations, DenyAtMost: 0.01}
	want := ran(t, cfg)
	for name, change := range map[string]func(*Config){
		"rules":      func(c *Config) { c.RuleSets = []*RuleSet{ruleSet(t, ruleText)} },
		"two limits": func(c *Config) { c.Rules, c.Compare = crossed(t, []string{"5/1m", "6/1m"}), true },
	} {
		cfg := cfg
		change(&cfg)
		got := ran(t, cfg)
		require.NotZero(t, got.Rules[0].Denied, name)
		require.Equal(t, want.Suggestions, got.Suggestions, name)
	}
}

// TestSuggestionsForEachEndpoint compares the limits of each endpoint with those of a replay of its
// requests alone.
func TestSuggestionsForEachEndpoint(t *testing.T) {
	requests := traffic(50, 3000)
	for i := range requests {
		switch k := i % 5; {
		case k == 0:
			requests[i].path = fmt.Sprintf("/users/%d", i)
		case k == 1:
			requests[i].path = "/login"
		case k == 2 && i < 300:
			requests[i].path = "/app.css"
		case k == 3 && requests[i].ip == "10.0.0.1":
			requests[i].path = "/rare"
		}
	}
	cfg := config(t, []string{write(t, "a.log", requests, request.common)}, "9/1m")
	cfg.Suggest = &Suggest{Strategies: []string{rule.Fixed, rule.Token}, Durations: Durations,
		DenyAtMost: 0.02}
	cfg.ByEndpoint = true
	got := ran(t, cfg)
	require.Empty(t, got.Suggestions)
	sum, seen := uint64(0), map[string]bool{}
	for _, e := range got.Endpoints {
		sum, seen[e.Name] = sum+e.Requests, true
		var of []request
		for _, r := range requests {
			name := endpoint.Of("GET", r.path)
			if name == "GET /rare" {
				name = endpoint.Others
			}
			if name == e.Name {
				of = append(of, r)
			}
		}
		alone := config(t, []string{write(t, "b.log", of, request.common)})
		alone.Suggest, alone.Force = cfg.Suggest, true
		want := ran(t, alone)
		require.Equal(t, want.Requests, e.Requests, e.Name)
		require.Equal(t, want.Callers, e.Callers, e.Name)
		if endpoint.Apart(e.Name) {
			want.Suggestions = nil
		}
		require.Equal(t, want.Suggestions, e.Suggestions, e.Name)
	}
	require.Equal(t, got.Requests, sum)
	for _, name := range []string{"GET /users/{id}", "GET /login", endpoint.Assets, endpoint.Others,
		"GET /p1"} {
		require.True(t, seen[name], name)
	}
	require.Contains(t, got.Names, "GET /rare", "what rules must know of")
	cfg.ByEndpoint = false
	plain := ran(t, cfg)
	require.Equal(t, plain.Rules, got.Rules, "limits are counted as ever")
}
