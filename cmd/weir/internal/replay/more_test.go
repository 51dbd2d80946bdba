package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// decided returns the requests that weir's strategy denies, each asked in turn.
func decided(t *testing.T, r rule.Rule, requests []request) (denied []bool) {
	t.Helper()
	var now time.Time
	l, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer l.Close()
	strategy, ask, err := r.On(l)
	require.NoError(t, err)
	for _, one := range requests {
		now, ask.Key = one.at, one.ip
		res, err := strategy.Run(context.Background(), &ask)
		require.NoError(t, err)
		denied = append(denied, !res.Allowed())
	}
	return denied
}

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
		byA, byB := decided(t, a, requests), decided(t, b, requests)
		want := Comparison{Names: [2]string{a.String(), b.String()}}
		callers, paths := [2]map[string]uint64{{}, {}}, [2]map[string]uint64{{}, {}}
		for i, one := range requests {
			switch {
			case byA[i] && byB[i]:
				want.Both++
			case byA[i] || byB[i]:
				side := 0
				if byB[i] {
					side = 1
				}
				want.Only[side].Denied++
				callers[side][one.ip]++
				paths[side][one.path]++
			}
		}
		for i := range want.Only {
			want.Only[i].Met = len(callers[i])
			want.Only[i].Callers, want.Only[i].Paths = tallies(callers[i], 4), tallies(paths[i], 4)
		}
		require.NotZero(t, want.Only[0].Denied+want.Only[1].Denied)
		rand.New(rand.NewPCG(seed, 5)).Shuffle(len(requests), func(i, j int) {
			requests[i], requests[j] = requests[j], requests[i]
		})
		cfg := config(t, []string{write(t, "a.log", requests, request.caddy)})
		cfg.Rules, cfg.Compare, cfg.Top = []rule.Rule{a, b}, true, 4
		got, err := Run(cfg)
		require.NoError(t, err)
		addsUp(t, got)
		require.Equal(t, want, *got.Compared)
		require.Equal(t, got.Rules[0].Denied, want.Both+want.Only[0].Denied)
		cfg.Compare, cfg.Top = false, 10
		plain, err := Run(cfg)
		require.NoError(t, err)
		cfg.Compare = true
		again, err := Run(cfg)
		require.NoError(t, err)
		again.Config, again.Compared = plain.Config, nil
		require.Equal(t, plain, again, "the rest of the report is the same")
	}
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

// TestWholeSecondsAreSpreadAlikeByPath checks that a comparison, which numbers callers and paths,
// spreads a caller's requests of a second as other replays do.
func TestWholeSecondsAreSpreadAlikeByPath(t *testing.T) {
	file := write(t, "a.log", traffic(9, 1500), request.common)
	cfg := config(t, []string{file}, "2/1500ms:log", "2/700ms:token")
	plain, err := Run(cfg)
	require.NoError(t, err)
	cfg.Compare = true
	got, err := Run(cfg)
	require.NoError(t, err)
	require.NotZero(t, got.Rules[0].Denied)
	require.Equal(t, plain.Rules, got.Rules)
}

// TestRulesBesideSuggestions checks that suggestions are the same beside rules, limits and a
// comparison.
func TestRulesBesideSuggestions(t *testing.T) {
	file := write(t, "a.log", traffic(8, 1500), request.common)
	cfg := config(t, []string{file})
	cfg.Suggest = &Suggest{Strategies: rule.Strategies, Durations: Durations, Share: 0.01}
	want, err := Run(cfg)
	require.NoError(t, err)
	for name, change := range map[string]func(*Config){
		"rules":      func(c *Config) { c.RuleSets = []*RuleSet{ruleSet(t, ruleText)} },
		"two limits": func(c *Config) { c.Rules, c.Compare = crossed(t, []string{"5/1m", "6/1m"}), true },
	} {
		cfg := cfg
		change(&cfg)
		got, err := Run(cfg)
		require.NoError(t, err)
		require.NotZero(t, got.Rules[0].Denied, name)
		require.Equal(t, want.Suggestions, got.Suggestions, name)
	}
}

// TestReplicasDecideOnTheirOwn compares instances with the model, run on the requests of each.
func TestReplicasDecideOnTheirOwn(t *testing.T) {
	requests := traffic(30, 2000)
	file := write(t, "a.log", requests, request.caddy)
	for _, of := range []Replicas{{N: 2}, {N: 3, Skew: 1}, {N: 5, Skew: 100}} {
		cfg := config(t, []string{file}, "3/10s", "4/1m:token")
		cfg.Rules = append(cfg.Rules, crossed(t, []string{"3/10s"}, rule.Log)...)
		cfg.Replicas = of
		got, err := Run(cfg)
		require.NoError(t, err)
		addsUp(t, got)
		require.Len(t, got.Rules, 6)
		for i, r := range cfg.Rules {
			var alone, together uint64
			for ip, at := range instantsOf(requests, keys[ByIP], false) {
				j := &replicaDecider{shares: of.shares(), sent: make([]uint32, 1)}
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

// TestRequestsGoToInstancesByTheirShare draws many requests, and checks the shares against
// 1/i^Skew.
func TestRequestsGoToInstancesByTheirShare(t *testing.T) {
	const n = 40_000
	for _, of := range []Replicas{{N: 4}, {N: 3, Skew: 1}, {N: 3, Skew: 2}} {
		j := &replicaDecider{shares: of.shares(), sent: make([]uint32, 4)}
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
	cfg := Config{Files: []string{write(t, "a.log", traffic(12, 1500), request.caddy)}, By: ByIP,
		RuleSets: []*RuleSet{ruleSet(t, ruleText)}, MaxBuckets: 1 << 20, Top: 10,
		Replicas: Replicas{N: 2, Skew: 100}}
	got, err := Run(cfg)
	require.NoError(t, err)
	last := got.Rules[len(got.Rules)-1]
	require.Equal(t, 2, last.Replicas)
	last.Replicas = 0
	require.Equal(t, got.Rules[0], last)
	cfg.Replicas.Skew = 0
	got, err = Run(cfg)
	require.NoError(t, err)
	require.Less(t, got.Rules[len(got.Rules)-1].Denied, got.Rules[0].Denied)
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
		Share: 0.02}
	cfg.ByEndpoint = true
	got, err := Run(cfg)
	require.NoError(t, err)
	addsUp(t, got)
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
		want, err := Run(alone)
		require.NoError(t, err)
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
	plain, err := Run(cfg)
	require.NoError(t, err)
	require.Equal(t, plain.Rules, got.Rules, "limits are counted as ever")
}

// TestApart counts the crawlers' requests, and those that were answered with 429, by hand.
func TestApart(t *testing.T) {
	var text string
	line := func(ip string, second, status int, agent string) {
		text += fmt.Sprintf(`%s - - [01/Jan/2026:00:00:%02d +0000] "GET /a HTTP/1.1" %d 1 "-" "%s"`+"\n",
			ip, second,
			status, agent)
	}
	const bot = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"
	const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for i := range 5 {
		line("192.0.2.1", i, 200, bot)
		line("192.0.2.2", i, 200+229*(i/4), browser)
	}
	line("192.0.2.2", 9, 429, bot)
	file := writeText(t, "a.log", text)
	cfg := config(t, []string{file}, "3/1m")
	for _, looks := range []bool{false, true} {
		cfg.Crawlers = looks
		got, err := Run(cfg)
		require.NoError(t, err)
		want, denied := Apart{Answered: 2}, Apart{Answered: 2}
		if looks {
			want.Crawled, denied.Crawled = 6, 3
		}
		assert.Equal(t, want, got.Apart)
		assert.Equal(t, denied, got.Rules[0].Apart)
		assert.EqualValues(t, 5, got.Rules[0].Denied)
	}
	cfg.By = ByAgent
	got, err := Run(cfg)
	require.NoError(t, err)
	require.Equal(t, 2, got.Callers)
	assert.Equal(t, Caller{bot, 6, 3, time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)},
		got.Rules[0].Worst[0])
}
