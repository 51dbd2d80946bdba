package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/httplimit"
)

// The syntax is that of package rule, whose tests have it.
func TestParseLimitNames(t *testing.T) {
	for text, want := range map[string]string{
		"100/1m": "100/1m", "10/1s:token": "10/1s", "daily=9/1d": "daily", "5/1s,9/10s": "5/1s,9/10s",
		"both=5/1s,9/10s": "both",
	} {
		got, err := ParseLimit(text, rule.Defaults{Strategy: rule.Fixed})
		require.NoError(t, err, text)
		assert.Equal(t, want, got.Name, text)
	}
	_, err := ParseLimit("1/1m:wish", rule.Defaults{Strategy: rule.Fixed})
	assert.Error(t, err)
}

func TestParseRoute(t *testing.T) {
	r, err := ParseRoute("POST /login limit=5/1m cost=2 limit=slow=20/1h",
		rule.Defaults{Strategy: rule.Fixed})
	require.NoError(t, err)
	assert.Equal(t, "POST /login", r.Pattern)
	assert.EqualValues(t, 2, r.Cost)
	require.Len(t, r.Limits, 2)
	assert.Equal(t, "5/1m POST /login", r.Limits[0].Name,
		"counted apart from the same limit on another route")
	assert.Equal(t, "slow", r.Limits[1].Name)
	for _, text := range []string{"", "limit=5/1m", "/x cost=0", "/x cost=-1", "/x limit=wish"} {
		_, err := ParseRoute(text, rule.Defaults{Strategy: rule.Fixed})
		assert.Error(t, err, text)
	}
	_, err = (&Config{Routes: []Route{{Pattern: "no slash"}}}).table()
	assert.Error(t, err)
	_, err = (&Config{Routes: []Route{{Pattern: "/a"}, {Pattern: "/a"}}}).table()
	assert.Error(t, err, "the same route twice")
}

func entry(t *testing.T, text string) httplimit.DenyEntry {
	t.Helper()
	e, err := cli.Entry(text)
	require.NoError(t, err)
	return e
}

func TestParsePenalty(t *testing.T) {
	p, err := ParsePenalty("20/1m=10m")
	require.NoError(t, err)
	assert.Equal(t, httplimit.Penalty{Denials: 20, Within: time.Minute, For: 10 * time.Minute}, p)
	for _, text := range []string{"", "20/1m", "0/1m=1m", "20/1m=0s", "20/1m=-1s", "20/1m=x",
		"1/1s,2/2s=1m"} {
		_, err := ParsePenalty(text)
		assert.Error(t, err, text)
	}
}

func TestByDistinguishesCallers(t *testing.T) {
	request := func(target string, header ...string) *http.Request {
		r := httptest.NewRequest("GET", target, nil)
		r.RemoteAddr = "192.0.2.1:1234"
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	routed := request("/users/7")
	for _, row := range []struct {
		by   string
		r    *http.Request
		want string
	}{
		{"ip", request("/"), "192.0.2.1"},
		{"host", request("http://example.com/"), "example.com"},
		{"header:X-Key", request("/", "X-Key", "k"), "k"},
		{"user", request("/", "Authorization", "Basic YW5uOng="), "ann"},
		{"path", request("/a/b?c=d"), "/a/b"},
		{"path", request("/a//b/../%62/"), "/a/b"},
		{"pattern", routed, "GET /users/{id}"},
		{"ip+path", request("/a"), weir.JoinKey("192.0.2.1", "/a")},
		{"ip + path", request("/a"), weir.JoinKey("192.0.2.1", "/a")},
	} {
		b, err := ParseBy(row.by)
		require.NoError(t, err, row.by)
		key, err := keyOfRequest(t, b, row.r)
		require.NoError(t, err, row.by)
		assert.Equal(t, row.want, key, row.by)
	}
	for _, by := range []string{"header:X-Key", "user"} {
		b, err := ParseBy(by)
		require.NoError(t, err)
		_, err = keyOfRequest(t, b, request("/"))
		assert.ErrorIs(t, err, httplimit.ErrKey, "%s: who does not say who he is has no key", by)
	}
	for _, by := range []string{"", "moon", "ip+", "header:", "header:a b", "ip+moon"} {
		_, err := ParseBy(by)
		assert.Error(t, err, by)
	}
}

// keyOfRequest returns the key of a request to a proxy with one route.
func keyOfRequest(t *testing.T, b By, r *http.Request) (string, error) {
	t.Helper()
	routes, err := (&Config{Routes: []Route{{Pattern: "GET /users/{id}"}}, By: b}).table()
	require.NoError(t, err)
	rec := new(record)
	require.NoError(t, routes.Read(&rec.targets, r, r.URL.EscapedPath()))
	return b.extractor(httplimit.RemoteAddr(), 0).Extract(r.WithContext(
		context.WithValue(r.Context(), recordKey{}, rec)))
}

func TestLongPathsStayDistinct(t *testing.T) {
	b, err := ParseBy("path")
	require.NoError(t, err)
	key := func(path string) string {
		r := httptest.NewRequest("GET", path, nil)
		k, err := keyOfRequest(t, b, r)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(k), longest)
		return k
	}
	long := "/" + strings.Repeat("a", 5000)
	assert.Equal(t, key(long), key(long))
	assert.NotEqual(t, key(long+"b"), key(long+"c"))
}

func TestAdminAddressIsLoopbackByDefault(t *testing.T) {
	const long = "0123456789abcdef"
	for _, a := range []Admin{
		{}, {Addr: "127.0.0.1:1"}, {Addr: "127.9.9.9:1"}, {Addr: "[::1]:1"}, {Addr: "localhost:1"},
		{Addr: "[::ffff:127.0.0.1]:1"},
		{Addr: ":1", Remote: true, Token: long}, {Addr: "10.0.0.1:1", Remote: true, Token: long},
	} {
		assert.NoError(t, a.check(), "%+v", a)
	}
	for _, a := range []Admin{
		{Addr: ":1"}, {Addr: "0.0.0.0:1"}, {Addr: "[::]:1"}, {Addr: "10.0.0.1:1"},
		{Addr: "example.com:1"},
		{Addr: "127.0.0.1"},
		{Addr: ":1", Remote: true}, {Addr: ":1", Token: long}, {Addr: "127.0.0.1.example.com:1"},
	} {
		assert.Error(t, a.check(), "%+v", a)
	}
}
