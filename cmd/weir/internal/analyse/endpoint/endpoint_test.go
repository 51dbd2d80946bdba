package endpoint

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/rules"
)

func TestOf(t *testing.T) {
	for path, want := range map[string]string{
		"/":         "GET /",
		"/users/42": "GET /users/{id}",
		"/users/123e4567-e89b-12d3-a456-426614174000/orders/7": "GET /users/{id}/orders/{id}",
		"/o/507f1f77bcf86cd799439011":                          "GET /o/{id}",
		"/t/01arz3ndektsv4rrffq69g5fav":                        "GET /t/{id}",
		"/users/me":                                            "GET /users/me",
		"/v1/users":                                            "GET /v1/users",
		"/blog/internationalization":                           "GET /blog/internationalization",
		"/app.js":                                              Assets,
		"/fonts/a.woff2":                                       Assets,
		"/healthz":                                             Health,
		"/api/health":                                          Health,
		"/health/reports":                                      "GET /health/reports",
		"":                                                     Others,
	} {
		assert.Equal(t, want, Of("GET", path), path)
	}
	assert.Equal(t, "POST /login", Of("POST", "/login"))
}

// TestFold checks that rare names are folded where they are many, and names with callers of their
// own are not.
func TestFold(t *testing.T) {
	callers := map[string]int{"GET /blog/popular": 10, "GET /blog/{id}": 3, Assets: 5, Others: 1,
		"GET /": 100, "POST /blog/post1": 2}
	for i := range maxNames {
		callers[fmt.Sprintf("GET /blog/post%c", 'a'+i)] = 9
		callers[fmt.Sprintf("GET /few/name%c", 'a'+i)] = 1
		callers[fmt.Sprintf("GET /blog/post%c/comments", 'a'+i)] = 0
	}
	got := Fold(callers)
	require.Len(t, got, len(callers))
	for name, want := range map[string]string{"GET /blog/popular": "GET /blog/popular",
		"GET /blog/{id}": "GET /blog/{name}", "GET /blog/posta": "GET /blog/{name}",
		"GET /blog/posta/comments": "GET /blog/{name}/comments",
		"GET /few/namea":           "GET /few/namea", "GET /": "GET /", Assets: Assets, Others: Others,
		"POST /blog/post1": "POST /blog/post1"} {
		assert.Equal(t, want, got[name], name)
	}
}

// TestRulesDescribeEachRequestOnce writes rules for the endpoints of random paths, and checks that
// each request, however its path is spelled, has the descriptor of its endpoint and no other.
func TestRulesDescribeEachRequestOnce(t *testing.T) {
	for seed := range uint64(slow.N(1, 4, 40)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var paths []string
		callers := map[string]int{}
		for range 300 {
			path := ""
			for range 1 + rnd.IntN(3) {
				path += "/" + []string{"a", "b.c", "users", fmt.Sprint("name", string(rune('a'+rnd.IntN(26))),
					string(rune('a'+rnd.IntN(26)))), fmt.Sprint(rnd.IntN(1000))}[rnd.IntN(5)]
			}
			paths = append(paths, path)
			callers[Of("GET", path)] = rnd.IntN(2 * MinCallers)
		}
		folded := Fold(callers)
		var limits []Limit
		var names []string
		limited := map[string]bool{}
		for _, name := range folded {
			names = append(names, name)
			if !limited[name] && rnd.IntN(4) > 0 {
				limited[name] = true
				limits = append(limits, Limit{Name: name, Requests: 1 + uint64(rnd.IntN(9))})
			}
		}
		set := load(t, limits, names)
		for _, path := range paths {
			want := folded[Of("GET", path)]
			for _, spelling := range []string{path, "/" + path, strings.ToUpper(path), path + "/",
				path + "?x=/a/b",
				path + "/?y=1"} {
				u, err := url.ParseRequestURI(spelling)
				require.NoError(t, err)
				u.Host = "" // of a path with two slashes
				if spelling == "/"+path {
					u = &url.URL{Path: spelling}
				}
				r := &http.Request{Method: "GET", URL: u, Header: http.Header{}, RemoteAddr: "192.0.2.1:1"}
				all := set.RequestOf("endpoints", r, httplimit.RemoteAddr()).Descriptors
				if !limited[want] {
					require.Empty(t, all, "seed %d: %s is %s", seed, spelling, want)
					continue
				}
				require.Len(t, all, 1, "seed %d: %s is %s", seed, spelling, want)
				require.Equal(t, []rules.Entry{{Key: "endpoint", Value: want},
					{Key: "remote_address", Value: "192.0.2.1"}}, all[0].Entries)
				require.NotNil(t, set.Match("endpoints", all[0].Entries))
				r.Method = "POST"
				require.Empty(t, set.RequestOf("endpoints", r, httplimit.RemoteAddr()).Descriptors)
			}
		}
	}
}

func load(t *testing.T, limits []Limit, names []string) *rules.Set {
	t.Helper()
	text, err := Rules("how\nthey were found\n", limits, names,
		map[string]any{"remote_address": map[string]any{}},
		"remote_address")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "# how\n# they were found\n"))
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	set, err := rules.LoadFiles(file)
	require.NoError(t, err, "%s", text)
	return set
}

func TestRulesOfEachAlgorithm(t *testing.T) {
	set := load(t, []Limit{{Name: "GET /a", Requests: 7, Algorithm: "token_bucket",
		Burst: 3},
		{Name: "GET /b", Requests: 8}}, []string{"GET /a", "GET /b"})
	var got []string
	for r := range set.All() {
		got = append(got, fmt.Sprint(r.Path, " ", r.Limit.Requests, " ", r.Limit.Algorithm, " ",
			r.Limit.Burst))
	}
	assert.Equal(t, []string{`endpoint="GET /a",remote_address 7 token_bucket 3`,
		`endpoint="GET /b",remote_address 8 fixed_window 0`}, got)
}
