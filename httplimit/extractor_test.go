package httplimit_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// wantKey checks the key that e extracts from r; "" means an error.
func wantKey(t *testing.T, e httplimit.Extractor, r *http.Request, want string) {
	t.Helper()
	key, err := e.Extract(r)
	assert.Equal(t, want, key)
	if want == "" {
		assert.ErrorIs(t, err, httplimit.ErrKey)
		return
	}
	assert.NoError(t, err)
}

func TestHeaders(t *testing.T) {
	for _, row := range []struct {
		name  string
		names []string
		r     *http.Request
		want  string
	}{
		{"one header is its value", []string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key: alice"),
			"alice"},
		{"the name in any case", []string{"x-API-key"}, from("1.2.3.4:1", "X-Api-Key: alice"), "alice"},
		{"blanks around it do not make another caller",
			[]string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key:  \talice "), "alice"},
		{"several are joined with their lengths", []string{"X-Org", "X-User"},
			from("1.2.3.4:1", "X-Org: a", "X-User: b:c"), weir.JoinKey("a", "b:c")},
		{"the host asked for", []string{"Host"}, from("1.2.3.4:1"), "example.com"},
		{"every one must be there", []string{"X-Org", "X-User"}, from("1.2.3.4:1", "X-Org: a"), ""},
		{"an empty one is not there", []string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key: "), ""},
		{"nor is a blank one", []string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key:  \t "), ""},
		{"which of two does the handler go by?",
			[]string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key: a", "X-Api-Key: a"), ""},
		{"the longest there is", []string{"X-Api-Key"},
			from("1.2.3.4:1", "X-Api-Key: "+strings.Repeat("k", 1024)), strings.Repeat("k", 1024)},
		{"one byte more",
			[]string{"X-Api-Key"}, from("1.2.3.4:1", "X-Api-Key: "+strings.Repeat("k", 1025)), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			wantKey(t, httplimit.Headers(row.names...), row.r, row.want)
		})
	}
	noHost := from("1.2.3.4:1")
	noHost.Host = ""
	wantKey(t, httplimit.Headers("Host"), noHost, "")
	assert.Panics(t, func() { httplimit.Headers() })
	assert.Panics(t, func() { httplimit.Headers("X-Api-Key", "") })
	assert.Panics(t, func() { httplimit.Headers("no name") })
}

func TestPattern(t *testing.T) {
	r := from("1.2.3.4:1")
	wantKey(t, httplimit.Pattern(), r, "") // outside the mux no route has matched yet
	r.Pattern = "GET /users/{id}"
	wantKey(t, httplimit.Pattern(), r, "GET /users/{id}")
	r.Pattern = "/" + strings.Repeat("p", 1024)
	wantKey(t, httplimit.Pattern(), r, "")
}

func TestJoin(t *testing.T) {
	both := httplimit.Join(httplimit.RemoteAddr(), httplimit.Headers("X-Org", "X-User"))
	r := from("1.2.3.4:1", "X-Org: a", "X-User: b")
	wantKey(t, both, r, weir.JoinKey("1.2.3.4", weir.JoinKey("a", "b")))
	r.Header.Del("X-User")
	wantKey(t, both, r, "")

	boom := errors.New("boom")
	_, err := httplimit.Join(httplimit.RemoteAddr(), failing(boom)).Extract(r)
	assert.ErrorIs(t, err, boom)
	wantKey(t, httplimit.Join(constant("")), r, "") // an empty key is an error
	wantKey(t, httplimit.Join(constant(strings.Repeat("k", 2000))), r, "")
	assert.Panics(t, func() { httplimit.Join() })
	assert.Panics(t, func() { httplimit.Join(httplimit.RemoteAddr(), nil) })
}

func constant(key string) httplimit.Extractor {
	return httplimit.ExtractorFunc(func(*http.Request) (string, error) { return key, nil })
}

func failing(err error) httplimit.Extractor {
	return httplimit.ExtractorFunc(func(*http.Request) (string, error) { return "", err })
}

// Parts are joined with their lengths, so no separator in a part can make keys collide.
func TestJoinedKeysNeverCollide(t *testing.T) {
	parts := []string{"a", "b", "a:b", "b:c", ":", "1:a", "1:a1:b", "-", "|", "_", "\x00", "\xff", " "}
	seen := make(map[string][2]string)
	for _, p := range parts {
		for _, q := range parts {
			key, err := httplimit.Join(constant(p), constant(q)).Extract(from("1.2.3.4:1"))
			require.NoError(t, err)
			require.NotContains(t, seen, key, "%q and %q", [2]string{p, q}, seen[key])
			seen[key] = [2]string{p, q}
		}
	}
	assert.Len(t, seen, len(parts)*len(parts))
}

func FuzzExtractors(f *testing.F) {
	f.Add("alice", "b:c", "GET /x", "1.2.3.4:1")
	f.Add("", " ", "", "@")
	f.Add("a\nb", strings.Repeat("x", 1025), "/{$}", "[::1%z]:1")
	f.Fuzz(func(t *testing.T, a, b, pattern, peer string) {
		r := from(peer)
		r.Header["X-A"], r.Header["X-B"], r.Pattern = strings.Split(a, "\n"), strings.Split(b, "\n"),
			pattern
		single := []httplimit.Extractor{httplimit.Headers("X-A"), httplimit.Headers("X-B"),
			httplimit.Pattern(), httplimit.RemoteAddr()}
		parts, failed := make([]string, len(single)), false
		for i, e := range single {
			key, err := e.Extract(r)
			checkExtracted(t, key, err)
			parts[i], failed = key, failed || err != nil
		}
		pair, err := httplimit.Headers("X-A", "X-B").Extract(r)
		checkExtracted(t, pair, err)
		if err == nil {
			require.Equal(t, weir.JoinKey(parts[0], parts[1]), pair)
		}
		whole, err := httplimit.Join(single...).Extract(r)
		checkExtracted(t, whole, err)
		require.Equal(t, failed, err != nil)
		if !failed {
			require.Equal(t, weir.JoinKey(parts...), whole)
		}
	})
}

func checkExtracted(t *testing.T, key string, err error) {
	t.Helper()
	if err == nil {
		require.NotEmpty(t, key)
		return
	}
	require.ErrorIs(t, err, httplimit.ErrKey)
	require.Empty(t, key)
}

// All spellings of a host share a key, as they reach the same server.
func TestSpellingsOfAHostShareKey(t *testing.T) {
	byHost := httplimit.Headers("Host")
	for want, hosts := range map[string][]string{
		"api.example.com": {"api.example.com", "API.example.com", "api.example.com.", "api.example.com:1",
			"Api.Example.Com.:443", "api.example.com.."},
		"[2001:db8::1]": {"[2001:db8::1]", "[2001:DB8::1]:8080"},
		"127.0.0.1":     {"127.0.0.1:80", "127.0.0.1"},
	} {
		for _, host := range hosts {
			r := from("203.0.113.7:1")
			r.Host = host
			got, err := byHost.Extract(r)
			require.NoError(t, err)
			assert.Equal(t, want, got, host)
		}
	}
	for _, host := range []string{"", ".", ":1"} {
		r := from("203.0.113.7:1")
		r.Host = host
		_, err := byHost.Extract(r)
		assert.ErrorIs(t, err, httplimit.ErrKey, "%q", host)
	}
}
