package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/rules"
)

// classed has a rule for each class, and one without.
const classed = `
domain: web
descriptors:
  - {key: path, value: /login, metadata: {weir: {class: critical}}, rate_limit: {unlimited: true}}
  - {key: path, value: /export, metadata: {weir: {class: sheddable, algorithm: sliding_window}}, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: path, value: /page, metadata: {weir: {class: normal}}, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: path, value: /slow, metadata: {weir: {class: critical}}, rate_limit: {unit: in_flight, requests_per_unit: 9}}
  - {key: plan, value: gold, metadata: {weir: {class: critical}}, rate_limit: {unit: day, requests_per_unit: 1000}}
rate_limits:
  - actions: [{request_headers: {header_name: ":path", descriptor_key: path}}]
  - actions: [{request_headers: {header_name: plan, descriptor_key: plan}}]
`

func TestTheClassOfARequestIsThatOfItsRules(t *testing.T) {
	w := newWorld(t, classed, rules.Config{})
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	var seen overload.Class
	for name, cfg := range map[string]httplimit.Config{"the rules": {},
		"its own": {Class: func(*http.Request) overload.Class { return overload.Sheddable }}} {
		cfg.Overload, err = overload.New(limiter, overload.Config{Most: 100})
		require.NoError(t, err)
		for range 100 {
			_, err := cfg.Overload.Enter(t.Context(), "", overload.Critical)
			require.NoError(t, err)
		}
		cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = d.Full.Class }
		h := rules.Middleware(w.engine, cfg)(hello)
		for _, row := range []struct {
			path, plan string
			want       overload.Class
		}{
			{"/login", "", overload.Critical}, {"/export", "", overload.Sheddable},
			{"/page", "", overload.Normal}, {"/slow", "", overload.Critical},
			{"/nowhere", "", overload.Normal}, {"/page", "gold", overload.Critical},
			{"/export", "gold", overload.Sheddable}, {"//export", "gold", overload.Critical},
		} {
			assert.Equal(t, 503, get(h, row.path, "Plan", row.plan).Code)
			if name == "its own" {
				row.want = overload.Sheddable
			}
			assert.Equal(t, row.want, seen, row)
		}
	}
}

func TestRulesWithoutAClassAreNotAsked(t *testing.T) {
	w := newWorld(t, two, rules.Config{})
	d := rules.Decider{Engine: w.engine, Domain: "web"}
	assert.Equal(t, overload.Normal, d.Class(httplimit.RemoteAddr())(nil), "it sees no request")
	d.Domain = "elsewhere"
	assert.Equal(t, overload.Normal, d.Class(httplimit.RemoteAddr())(nil))
}

func TestAClassIsCheckedAndWritten(t *testing.T) {
	for _, row := range []struct{ file, want string }{
		{in("{key: k, " + rateLimit + ", metadata: {weir: {class: critcal}}}"),
			"unknown class 'critcal'; did you mean 'critical'?"},
		{in("{key: k, metadata: {weir: {class: critical}}}"),
			"metadata.weir has no effect without a rate_limit"},
		{in("{key: k, rate_limit: {unlimited: true}, metadata: {weir: {class: critical, costs: afterwards}}}"),
			"metadata.weir has no effect: the rule is unlimited"},
	} {
		set, err := rules.Load(fstest.MapFS{"r.yaml": {Data: []byte(row.file)}}, "r.yaml")
		text := fmt.Sprint(err)
		if err == nil {
			text = fmt.Sprint(set.Warnings())
		}
		assert.Contains(t, text, row.want)
	}
	set := load(t, classed)
	assert.Empty(t, set.Warnings())
	var said []string
	for r := range set.All() {
		said = append(said, fmt.Sprint(r.Class))
		assert.Equal(t, r.Class != overload.Normal, strings.Contains(r.String(), ", "+r.Class.String()), r)
	}
	assert.Equal(t, []string{"critical", "sheddable", "normal", "critical", "critical"}, said)
	written, err := set.YAML()
	require.NoError(t, err)
	for i, n := range []int{1, 0, 3} {
		class := overload.Class(i - 1).String()
		assert.Equal(t, n, strings.Count(string(written), "class: "+class), class)
	}
}
