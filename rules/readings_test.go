package rules_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// TestThePathIsReadOnce describes requests by the path and by an entry that takes work, in three
// descriptors. However many readings the path has, that entry is computed once in each.
func TestThePathIsReadOnce(t *testing.T) {
	w := newWorld(t, `
domain: web
descriptors:
  - key: costly
    descriptors:
      - {key: path, rate_limit: {unit: hour, requests_per_unit: 100}}
      - {key: path, value: /search/*, rate_limit: {unit: hour, requests_per_unit: 100}}
`, rules.Config{})
	tests := 0
	costly := describe.HeaderMatch("costly", "yes", true, describe.Matcher{Name: "X-Costly",
		Test: func(string) bool { tests++; return true }})
	one := describe.By(costly, describe.Path("path"))
	h := rules.NewGuard(rules.Decider{Engine: w.engine, Describers: []describe.Describer{one, one, one}},
		httplimit.Config{}).Wrap(hello)
	for path, want := range map[string]int{
		"/a": 3, "/search/../a": 3, "/a;%2F..%2Fb": 3,
		strings.Repeat("//a;b/%252e%252e%253b/%2f..", 20): 3, "/" + strings.Repeat("a", 8<<10): 3,
	} {
		tests = 0
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Costly", "1")
		h.ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, want, tests, "%.30s", path)
	}
}

// TestAPathThatCannotBeReadIsRefused has a path that is too long, and one with too many readings.
func TestAPathThatCannotBeReadIsRefused(t *testing.T) {
	long, many := "/"+strings.Repeat("a", 8<<10), strings.Repeat("//a;b/%252e%252e%253b/%2f..", 20)
	h := rules.Middleware(newWorld(t, guarded, rules.Config{}).engine, httplimit.Config{})(hello)
	assert.Equal(t, 414, get(h, long).Code)
	assert.Equal(t, 414, get(h, long+";").Code)
	assert.Equal(t, 200, get(h, long[:8<<10]).Code, "it is as long as the bound")
	assert.Equal(t, 400, get(h, many).Code)
	shadow := rules.Middleware(newWorld(t, guarded, rules.Config{Shadow: true}).engine, httplimit.Config{})(hello)
	assert.Equal(t, 200, get(shadow, long).Code)
	assert.Equal(t, 200, get(shadow, many).Code)
	skipped := rules.NewGuard(rules.Decider{Engine: newWorld(t, guarded, rules.Config{}).engine,
		Describers: []describe.Describer{describe.By(describe.Path("path"), describe.Header("X-User", "user", false))}}, httplimit.Config{}).Wrap(hello)
	assert.Equal(t, 200, get(skipped, many).Code, "the descriptor lacks another entry")
	noPath := rules.NewGuard(rules.Decider{Engine: newWorld(t, guarded, rules.Config{}).engine,
		Describers: []describe.Describer{describe.By(describe.RemoteAddress())}}, httplimit.Config{}).Wrap(hello)
	assert.Equal(t, 200, get(noPath, long).Code, "no descriptor has the path")
}
