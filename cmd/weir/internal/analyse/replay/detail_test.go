package replay

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sum is a count of requests and of denials.
type sum struct{ requests, denied uint64 }

// TestCallersAndRoutesAreCounted compares the routes of a fixed window, and the detail of each
// listed caller, with counts of every request, for any order of the lines, by limits and by rules.
func TestCallersAndRoutesAreCounted(t *testing.T) {
	requests := traffic(7, 4000)
	type sight struct {
		routes  map[string]sum
		windows map[time.Time]sum
	}
	see := func() *sight { return &sight{map[string]sum{}, map[time.Time]sum{}} }
	all, callers := see(), map[string]*sight{}
	for _, q := range requests {
		at := q.at.Truncate(time.Minute)
		c := callers[q.ip]
		if c == nil {
			c = see()
			callers[q.ip] = c
		}
		denied := uint64(0)
		if c.windows[at].requests >= 20 {
			denied = 1
		}
		name := "GET " + q.path
		for _, s := range []*sight{all, c} {
			s.routes[name] = sum{s.routes[name].requests + 1, s.routes[name].denied + denied}
			s.windows[at] = sum{s.windows[at].requests + 1, s.windows[at].denied + denied}
		}
	}
	routesOf := func(s *sight) (want []Route) {
		for name, n := range s.routes {
			want = append(want, Route{name, n.requests, n.denied})
		}
		slices.SortFunc(want, func(a, b Route) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
				cmp.Compare(a.Name, b.Name))
		})
		return want[:min(6, len(want))]
	}
	var first *Result
	for _, seed := range []uint64{0, 1, 2} {
		lines := slices.Clone(requests)
		if seed > 0 {
			shuffle(lines, seed)
		}
		cfg := config(t, []string{write(t, "a.log", lines, request.caddy)}, "20/1m")
		cfg.Routes, cfg.Top, cfg.parts, cfg.maxRun = true, 6, 1+int(seed), 300
		got := ran(t, cfg)
		rr := got.Rules[0]
		require.Len(t, rr.Worst, 4)
		assert.Equal(t, routesOf(all), rr.Routes)
		for _, c := range rr.Worst {
			want, total := callers[c.Name], sum{}
			assert.Equal(t, routesOf(want), c.Routes, c.Name)
			var windows []Window
			for at, n := range want.windows {
				windows = append(windows, Window{at, n.requests, n.denied})
			}
			slices.SortFunc(windows, func(a, b Window) int {
				return cmp.Or(cmp.Compare(b.Requests, a.Requests), a.From.Compare(b.From))
			})
			assert.Equal(t, windows[:min(maxBusiest, len(windows))], c.Busiest)
			for i := range c.Timeline.Rows[0] {
				total.requests += c.Timeline.Rows[0][i]
				total.denied += c.Timeline.Rows[1][i]
			}
			assert.Equal(t, sum{c.Requests, c.Denied}, total)
		}
		if first == nil {
			first = got
		}
		assert.Equal(t, first.Rules, got.Rules)
	}
	cfg := config(t, first.Files)
	cfg.Rules, cfg.RuleSets, cfg.Routes, cfg.Top = nil, []*RuleSet{ruleSet(t, ruleText)}, true, 6
	got := ran(t, cfg)
	for _, rr := range got.Rules {
		assert.Equal(t, rr.Limit == "", rr.Routes != nil, "the whole set has routes")
		for _, c := range rr.Worst {
			denied := uint64(0)
			for _, n := range c.Timeline.Rows[1] {
				denied += n
			}
			assert.Equal(t, c.Denied, denied, "the rules decide as the first time")
		}
	}
}

// TestRoutesAreBounded numbers more routes than there may be, in two orders: paths are cut to the
// same length, and none of the many numbers is kept.
func TestRoutesAreBounded(t *testing.T) {
	var names []string
	for i := range 3000 {
		names = append(names, fmt.Sprintf("GET /a%d/b%d/c%d", i%3, i%40, i), fmt.Sprintf("M%d /x", i%30))
	}
	var routes [2][]string
	for i := range routes {
		table := newRouteTable()
		table.most = 200
		numbers := map[string]uint32{}
		for _, name := range names {
			numbers[name] = table.number(name)
		}
		assert.Less(t, len(table.names), 3*200)
		var ranks []uint32
		routes[i], ranks = table.ranks()
		for _, name := range names {
			assert.Equal(t, cut(name, 2), routes[i][ranks[numbers[name]]])
		}
		slices.Reverse(names)
	}
	assert.Len(t, routes[0], 3*40+30)
	assert.Equal(t, routes[0], routes[1])
	table := newRouteTable()
	table.most = 5
	for _, name := range names {
		table.number(name)
	}
	got, _ := table.ranks()
	assert.Equal(t, []string{"…"}, got, "so many methods are one route")
}
