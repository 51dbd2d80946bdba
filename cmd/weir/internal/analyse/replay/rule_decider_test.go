package replay

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// ruleText has rules for every algorithm with counters that callers share, and a rule that no
// request matches.
const ruleText = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: path, value: "/p1*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: path, value: /p2, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: /p3, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: path, value: /p4, metadata: {weir: {algorithm: token_bucket, burst: 3}}, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: path, value: /p5, rate_limit: {unlimited: true}}
  - key: user
    descriptors: [{key: masked_remote_address, rate_limit: {unit: hour, requests_per_unit: 30}}]
  - {key: nothing, rate_limit: {unit: hour, requests_per_unit: 1}}
---
domain: other
descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 0}}]
---
domain: web
rate_limits:
  - actions: [{remote_address: {}}]
  - {actions: [{path: {}}], hits_addend: {number: 2}}
  - actions: [{context_value: {name: user}}, {masked_remote_address: {v4_prefix_mask_len: 24}}]
`

func ruleSet(t testing.TB, text string) *RuleSet {
	name := filepath.Join(t.TempDir(), "r.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	set, err := rules.LoadFiles(name)
	require.NoError(t, err)
	return &RuleSet{Set: set, Name: name, Domain: "web", Flags: []string{"--rules", name}}
}

// askEngine returns an engine's decisions on requests one by one.
func askEngine(
	t *testing.T, s *RuleSet, requests []request,
) (denied []uint64, matched map[string]uint64) {
	var now time.Time
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer limiter.Close()
	engine, err := rules.New(s.Set,
		rules.Config{Strategies: rules.StrategiesOf(limiter), Now: func() time.Time {
			return now
		}})
	require.NoError(t, err)
	denied, matched = make([]uint64, 1+len(s.list())), make(map[string]uint64)
	for _, r := range requests {
		now = r.at
		in := httptest.NewRequest("GET", r.path+"?q=1", nil)
		in.RemoteAddr = r.ip + ":1"
		if r.user != "" {
			in = in.WithContext(describe.WithValue(in.Context(), "user", r.user))
		}
		resp, err := engine.Decide(context.Background(),
			s.Set.RequestOf("web", in, httplimit.RemoteAddr()))
		require.NoError(t, err)
		if !resp.Allowed() {
			denied[0]++
		}
		for _, st := range resp.Statuses {
			if st.Rule == nil {
				continue
			}
			matched[st.Rule.Path]++
			for i, rule := range s.list() {
				if rule == st.Rule && (st.Reason == rules.Over || st.Reason == rules.Shadowed) {
					denied[1+i]++
				}
			}
		}
	}
	return denied, matched
}

// TestRulesSayWhatTheEngineSays compares a replay of rules, with shuffled lines and short runs,
// with an engine's decisions.
func TestRulesSayWhatTheEngineSays(t *testing.T) {
	requests := traffic(11, 3000)
	for i := range requests {
		requests[i].at = requests[i].at.Add(time.Duration(i)) // different times
	}
	s := ruleSet(t, ruleText)
	want, matched := askEngine(t, s, requests)
	shuffled := slices.Clone(requests)
	shuffle(shuffled, 1)
	for name, lines := range map[string][]request{"in order": requests, "in any order": shuffled} {
		cfg := config(t, []string{write(t, "a.log", lines, request.caddy)})
		cfg.RuleSets, cfg.maxRun = []*RuleSet{s}, 50
		got := ran(t, cfg, name)
		require.Len(t, got.Rules, len(want))
		assert.EqualValues(t, len(requests), got.Rules[0].Matched)
		for i, rr := range got.Rules {
			assert.Equal(t, want[i], rr.Denied, "%s: %s", name, rr.Rule.Name)
			if i > 0 {
				assert.Equal(t, matched[rr.Rule.Name], rr.Matched, "%s: %s", name, rr.Rule.Name)
				assert.Equal(t, rr.Rule.Name == "path=/p2", rr.Shadow)
				assert.Equal(t, rr.Rule.Name != "path=/p5" && rr.Rule.Name != "nothing", rr.Denied > 0,
					rr.Rule.Name)
			}
		}
		assert.Less(t, got.Callers, 301)
		assert.Positive(t, got.Rules[2].Met, "several callers are denied by a counter that they share")
	}
}

// TestRulesInAnyOrder shuffles requests of one instant and of one second from callers that share
// counters.
func TestRulesInAnyOrder(t *testing.T) {
	requests := traffic(12, 2000)
	for i := range requests {
		requests[i].at = requests[i].at.Truncate(500 * time.Millisecond)
	}
	s := ruleSet(t, ruleText)
	var want *Result
	for seed := range uint64(4) {
		cfg := config(t, []string{write(t, "a.log", requests, mixed)})
		cfg.RuleSets, cfg.By, cfg.maxRun = []*RuleSet{s}, ByUser, 100
		got := ran(t, cfg)
		got.Config = Config{}
		if want == nil {
			want = got
			require.NotZero(t, got.Rules[1].Denied)
			require.Equal(t, "-", got.Rules[0].Worst[0].Name, "requests of nobody are decided on, too")
		}
		require.Equal(t, want, got, "order %d", seed)
		shuffle(requests, seed)
	}
}

// TestTiesMatter is the negative control of the test above: without a fixed order for requests of
// one instant, a report depends on the order of the lines.
func TestTiesMatter(t *testing.T) {
	s := ruleSet(t, `
domain: web
descriptors: [{key: all, rate_limit: {unit: hour, requests_per_unit: 1}}]
rate_limits: [{actions: [{generic_key: {descriptor_key: all, descriptor_value: x}}]}]
`)
	at := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	for _, ips := range [][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.2", "10.0.0.1"}} {
		var requests []request
		for _, ip := range ips {
			requests = append(requests, request{at: at, ip: ip, path: "/"})
		}
		cfg := config(t, []string{write(t, "a.log", requests, request.caddy)})
		cfg.RuleSets = []*RuleSet{s}
		got := ran(t, cfg)
		require.Len(t, got.Rules[1].Worst, 1)
		assert.Equal(t, "10.0.0.2", got.Rules[1].Worst[0].Name, "whatever line is first")
	}
}

func TestRulesNeedRoom(t *testing.T) {
	_, err := Run(Config{Files: []string{write(t, "a.log", traffic(1, 500), request.caddy)},
		RuleSets: []*RuleSet{ruleSet(t, ruleText)}, By: ByIP, MaxBuckets: 3, Top: 1})
	assert.ErrorIs(t, err, weir.ErrFull)
	assert.ErrorContains(t, err, "--max-buckets")
}

// TestDescriptions checks the description of each part of a request that a log has.
func TestDescriptions(t *testing.T) {
	const combined = `1.2.3.4 - ann [01/Jan/2020:00:00:00 +0000] "GET /a%20b?x=1&y=2 HTTP/1.1" 200 1 ` +
		`"http://r/" "curl/8"`
	for _, row := range []struct{ name, actions, line, want string }{
		{"address", "remote_address: {}", combined, "remote_address=1.2.3.4"},
		{"IPv6", "remote_address: {}", "2001:DB8::1" + combined[7:], "remote_address=2001:db8::1"},
		{"no address", "remote_address: {}", "host.example" + combined[7:], ""},
		{"path", "path: {}", combined, "path=/a%20b"},
		{"target", `request_headers: {header_name: ":path", descriptor_key: k}`, combined,
			`k="/a%20b?x=1&y=2"`},
		{"method", `request_headers: {header_name: ":method", descriptor_key: k}`, combined, "k=GET"},
		{"query", "query_parameters: {query_parameter_name: y, descriptor_key: k}", combined, "k=2"},
		{"user", "context_value: {name: user}", combined, "user=ann"},
		{"agent", "request_headers: {header_name: user-agent, descriptor_key: k}", combined, "k=curl/8"},
		{"referer", "request_headers: {header_name: Referer, descriptor_key: k}", combined,
			"k=http://r/"},
		{"a header that no log has", "request_headers: {header_name: X-Key, descriptor_key: k}",
			combined, ""},
		{"no request", "path: {}", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "\x16\x03" 400 0`, "path=/"},
		{"a target that is none", "path: {}",
			`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /%zz HTTP/1.1" 400 0`, "path=/%25zz"},
	} {
		s := ruleSet(t, fmt.Sprintf("domain: web\nrate_limits: [{actions: [{%s}]}]\n", row.actions))
		scan := newScanner(&Config{RuleSets: []*RuleSet{s}, By: ByIP})
		b := &block{data: []byte(row.line)}
		scan.scan(b)
		require.Len(t, b.records, 1, "%s: %+v", row.name, b.bad)
		d := description(b.arena)
		assert.NotEmpty(t, d.text(), row.name)
		assert.Empty(t, d.text(), "no report is by place")
		var req rules.Request
		d.read(&req)
		got := ""
		for _, desc := range req.Descriptors {
			got += rules.FormatEntries(desc.Entries)
		}
		assert.Equal(t, row.want, got, row.name)
	}
}
