package replay

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// TestReplicasDecideOnTheirOwn compares instances with the model, run on the requests of each.
func TestReplicasDecideOnTheirOwn(t *testing.T) {
	requests := traffic(30, 2000)
	file := write(t, "a.log", requests, request.caddy)
	for _, of := range []Replicas{{N: 2}, {N: 3, Skew: 1}, {N: 5, Skew: 100}} {
		cfg := config(t, []string{file}, "3/10s", "4/1m:token")
		cfg.Rules = append(cfg.Rules, crossed(t, []string{"3/10s"}, rule.Log)...)
		cfg.Replicas = of
		got := ran(t, cfg)
		require.Len(t, got.Rules, 6)
		for i, r := range cfg.Rules {
			var alone, together uint64
			for ip, at := range instantsOf(requests, keys[ByIP], false) {
				j := &replicaDecider{upTo: of.cumulative(), sent: make([]uint32, 1)}
				each := make([][]int64, of.N)
				for _, ns := range at {
					k := j.pick(ip, 0)
					each[k] = append(each[k], ns)
				}
				for _, instants := range each {
					alone += model(r, instants)
				}
				together += model(r, at)
			}
			require.Equal(t, together, got.Rules[i].Denied, "%v %s", of, r)
			require.Equal(t, alone, got.Rules[3+i].Denied, "%v %s", of, r)
			require.Equal(t, of.N, got.Rules[3+i].Replicas)
			if of.Skew == 100 {
				require.Equal(t, together, alone, "all requests go to the first")
			} else {
				require.Less(t, alone, together)
			}
		}
	}
}

// TestRequestsAreSpreadByTheSkew draws many requests, and checks the fractions against
// 1/i^Skew.
func TestRequestsAreSpreadByTheSkew(t *testing.T) {
	const n = 40_000
	for _, of := range []Replicas{{N: 4}, {N: 3, Skew: 1}, {N: 3, Skew: 2}} {
		j := &replicaDecider{upTo: of.cumulative(), sent: make([]uint32, 4)}
		got := make([]float64, of.N)
		for i := range n {
			got[j.pick(fmt.Sprint("caller", i%4), uint32(i%4))]++
		}
		sum := 0.0
		for i := range of.N {
			sum += 1 / math.Pow(float64(i+1), of.Skew)
		}
		for i := range got {
			want := n / math.Pow(float64(i+1), of.Skew) / sum
			assert.InDelta(t, want, got[i], 5*math.Sqrt(want), "%+v: instance %d", of, i)
		}
	}
}

// TestReplicasOfRules checks that a set of rules on one instance decides as the set does.
func TestReplicasOfRules(t *testing.T) {
	cfg := config(t, []string{write(t, "a.log", traffic(12, 1500), request.caddy)})
	cfg.RuleSets, cfg.Replicas = []*RuleSet{ruleSet(t, ruleText)}, Replicas{N: 2, Skew: 100}
	got := ran(t, cfg)
	last := got.Rules[len(got.Rules)-1]
	require.Equal(t, 2, last.Replicas)
	last.Replicas = 0
	require.Equal(t, got.Rules[0], last)
	cfg.Replicas.Skew = 0
	got = ran(t, cfg)
	require.Less(t, got.Rules[len(got.Rules)-1].Denied, got.Rules[0].Denied)
}
