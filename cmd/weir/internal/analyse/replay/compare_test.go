package replay

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// TestComparedIsWhatOneDeniesAlone compares a comparison with the decisions of weir's strategies on
// each request, with the lines in any order.
func TestComparedIsWhatOneDeniesAlone(t *testing.T) {
	for seed := range uint64(3) {
		requests := traffic(seed+40, 1500)
		for i := range requests {
			requests[i].at = requests[i].at.Add(time.Duration(i)) // different times
		}
		rules := crossed(t, []string{"5/10s", "20/1m:sliding", "3/5s:token"}, rule.Fixed)
		a, b := rules[seed%3], rules[(seed+1)%3]
		all := func(int) bool { return true }
		byA, byB := strategySays(t, a, requests, all), strategySays(t, b, requests, all)
		want := Comparison{Names: [2]string{a.String(), b.String()}}
		callers, routes := [2]map[string]uint64{{}, {}}, [2]map[string]uint64{{}, {}}
		for i, one := range requests {
			switch {
			case !byA[i] && !byB[i]:
				want.Both++
			case byA[i] != byB[i]:
				side := 0
				if byA[i] {
					side = 1
				}
				want.Only[side].Denied++
				callers[side][one.ip]++
				routes[side]["GET "+one.path]++
			}
		}
		for i := range want.Only {
			want.Only[i].Met = len(callers[i])
			want.Only[i].Callers, want.Only[i].Routes = tallies(callers[i], 4), tallies(routes[i], 4)
		}
		require.NotZero(t, want.Only[0].Denied+want.Only[1].Denied)
		shuffle(requests, seed)
		cfg := config(t, []string{write(t, "a.log", requests, request.caddy)})
		cfg.Rules, cfg.Compare, cfg.Top = []rule.Rule{a, b}, true, 4
		got := ran(t, cfg)
		require.Equal(t, want, *got.Compared)
		require.Equal(t, got.Rules[0].Denied, want.Both+want.Only[0].Denied)
		cfg.Compare, cfg.Top = false, 10
		plain := ran(t, cfg)
		cfg.Compare = true
		again := ran(t, cfg)
		again.Config, again.Compared = plain.Config, nil
		require.Equal(t, plain, again, "the rest of the report is the same")
	}
}

// TestWholeSecondsAreSpreadAlikeByPath checks that a comparison, which numbers callers and paths,
// spreads a caller's requests of a second as other replays do.
func TestWholeSecondsAreSpreadAlikeByPath(t *testing.T) {
	file := write(t, "a.log", traffic(9, 1500), request.common)
	cfg := config(t, []string{file}, "2/1500ms:log", "2/700ms:token")
	plain := ran(t, cfg)
	cfg.Compare = true
	got := ran(t, cfg)
	require.NotZero(t, got.Rules[0].Denied)
	require.Equal(t, plain.Rules, got.Rules)
}

func tallies(counts map[string]uint64, top int) []Count {
	all := []Count{}
	for name, n := range counts {
		all = append(all, Count{name, n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(top, len(all))]
}
