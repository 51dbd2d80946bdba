package urlpath_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/doors/urlpath"
)

func readings(t *testing.T, path string) (paths []string) {
	t.Helper()
	all, err := urlpath.Readings(nil, path)
	require.NoError(t, err)
	for _, r := range all {
		paths = append(paths, r.Path)
	}
	return paths
}

func TestReadings(t *testing.T) {
	for path, want := range map[string][]string{
		"/a/b.c/~d":                 {"/a/b.c/~d"},
		"/A/":                       {"/A/"},
		"*":                         {"*"},
		"":                          {"/"},
		"/.well-known/x":            {"/.well-known/x"},
		"/users/42%2Fx/reset":       {"/users/42%2Fx/reset", "/users/42/x/reset"},
		"/search/../foo":            {"/search/../foo", "/foo"},
		"/search/..;/foo":           {"/search/..;/foo", "/search/../foo", "/foo"},
		"/search/%2e%2e/foo":        {"/search/%252e%252e/foo", "/search/../foo", "/foo"},
		"/bucket//a":                {"/bucket//a", "/bucket/a"},
		"/a//../b":                  {"/a//../b", "/a/../b", "/a/b", "/b"},
		"//x/login":                 {"//x/login", "/x/login", "/login"},
		"/%256Cogin":                {"/%256Cogin", "/login"},
		`/a%5Cb`:                    {"/a%5Cb", "/a/b"},
		"/a;%2F..%2Fb":              {"/a;%2F..%2Fb", "/a", "/a;/../b", "/a/../b", "/b"},
		"/login;jsessionid=1;b=%3B": {"/login;jsessionid=1;b=%253B", "/login;jsessionid=1;b=;", "/login"},
		"/\xff\xfe":                 {"/%FF%FE"},
		"/50%":                      {"/50%25"},
	} {
		got := readings(t, path)
		for _, w := range want {
			assert.Contains(t, got, w, path)
		}
		if len(got) != len(want) {
			t.Logf("%s: %q", path, got)
		}
		assert.LessOrEqual(t, len(got), len(want)+1, path)
	}
}

// TestSpellingsAreCountedTogether lists spellings that some server takes for the first one.
func TestSpellingsAreCountedTogether(t *testing.T) {
	for name, spellings := range map[string][]string{
		"/login": {"/LOGIN", "/login/", "//login", "/./login", "/x/../login", "/%6cogin", "/%256cogin",
			"/login;a=b", "/login%3Ba=b", "/x/..;/login", "/x%2f..%2Flogin", `/x\..\login`, "/login/.",
			"/;a/login/;b",
			"/%2e/login", "/x/.%2E/login"},
		"/a/b":       {"/a%2Fb", "/a%5cb", "/a%252fb"},
		"/caf%C3%A9": {"/caf\xc3\xa9", "/CAF%C3%89", "/caf%25C3%25A9"},
		"/%FF":       {"/\xff", "/%ff/"},
		"/":          {"", "//", "/.", "/x/..", "/;a"},
		"*":          {"*"},
		"/100%25":    {"/100%", "/100%25", "/100%2525"},
	} {
		for _, spelling := range append(spellings, name) {
			assert.Equal(t, name, urlpath.Canonical(spelling), spelling)
		}
	}
	assert.NotEqual(t, urlpath.Canonical("/%FF"), urlpath.Canonical("/%FE"))
}

// TestAppendCanonicalIsCanonical appends every path of one to three bytes of each kind.
func TestAppendCanonicalIsCanonical(t *testing.T) {
	paths := []string{""}
	for from := 0; len(paths[from]) < 4; from++ {
		for _, next := range []string{"/", ".", "a", "Z", "*", "%", "%2e", ";", `\\`, " ", "\xff",
			"\x00"} {
			paths = append(paths, paths[from]+next, "/"+paths[from]+next)
		}
	}
	for _, path := range append(paths, "/Users/42/", "/a//B", "/.hidden/C", "/x/../D", "*",
		"/%41b/C;d=E") {
		got := urlpath.AppendCanonical([]byte("GET "), []byte(path))
		require.Equal(t, "GET "+urlpath.Canonical(path), string(got), "%q", path)
	}
}

// TestAPlainPathTakesNoMemory pins the cost of what nearly all requests have.
func TestAPlainPathTakesNoMemory(t *testing.T) {
	const path = "/users/8f14e45f-ceea-467f-a9b0-1d2c3e4f5a6b/orders,1/v1.2@x/"
	var buf [4]urlpath.Reading
	raw, key := []byte(path), make([]byte, 0, len(path))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if all, err := urlpath.Readings(buf[:0], path); err != nil || len(all) != 1 {
			panic("not plain")
		}
		_ = urlpath.Canonical(path)
		_ = urlpath.AppendCanonical(key[:0], raw)
		_, _ = urlpath.Normalize(path)
	}))
}

// TestWorkIsBounded reads paths that have as many readings as possible.
func TestWorkIsBounded(t *testing.T) {
	for path, want := range map[string]error{
		strings.Repeat("//a;b/%252e%252e%253b/%2f..", 20):             urlpath.ErrReadings,
		"//a/" + strings.Repeat(`/..;/%5c%255C%2F%252f.;x\..//`, 200): urlpath.ErrReadings,
		strings.Repeat("//..;/%2e/a", 700):                            urlpath.ErrReadings,
		"/%2e%2e/..;//..;/a%3b" + strings.Repeat("/a", 1190):          urlpath.ErrReadings,
		"/" + strings.Repeat("%25", 20_000):                           urlpath.ErrLen,
		strings.Repeat("//", 30_000) + ";":                            urlpath.ErrLen,
		"/" + strings.Repeat("a", urlpath.MaxLen):                     urlpath.ErrLen,
	} {
		all, err := urlpath.Readings(nil, path)
		require.ErrorIs(t, err, want, path[:40])
		assert.Empty(t, all)
		assert.NotEmpty(t, urlpath.Canonical(path))
		assert.Less(t, testing.AllocsPerRun(1, func() { _, _ = urlpath.Readings(nil, path) }), 100.0)
	}
	long := "/resize/https%3A%2F%2Fexample.com%2F" + strings.Repeat("a%20b%2Fc", 250)
	_, err := urlpath.Readings(nil, long)
	assert.NoError(t, err, "a long path with ordinary escapes")
}

func TestNormalize(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b":            "/a/b",
		"":                "/",
		"/%7Efoo/%c3%a9":  "/~foo/%C3%A9",
		"/a/./b/../c":     "/a/c",
		"/a/%2e%2E/c":     "/c",
		"/a//b":           "/a/b",
		"/A/b;v=1/":       "/A/b;v=1/",
		"/a%3Bb%20c%25":   "/a%3Bb%20c%25",
		"/a|b":            "/a%7Cb",
		"/\xc3\xa9":       "/%C3%A9",
		"/..":             "/",
		"/a%2":            "/a%2",
		"/a%25zz/%25/%31": "/a%25zz/%25/1",
	} {
		got, err := urlpath.Normalize(path)
		require.NoError(t, err, path)
		assert.Equal(t, want, got, path)
		again, err := urlpath.Normalize(got)
		require.NoError(t, err, path)
		assert.Equal(t, got, again, path)
	}
	for path, want := range map[string]error{
		"/a%2fb":       urlpath.ErrSlash,
		"/a%5Cb":       urlpath.ErrBackslash,
		`/a\b`:         urlpath.ErrBackslash,
		"/a%00":        urlpath.ErrNUL,
		"/a%252fb":     urlpath.ErrTwice,
		"/a%25%32%66":  urlpath.ErrTwice,
		"/a/..;/b":     urlpath.ErrDots,
		"/a/..%3bx/b":  urlpath.ErrDots,
		"/a/%2e;v=1/b": urlpath.ErrDots,
		"/a//../b":     urlpath.ErrDots,
		"/a//%2e%2e/b": urlpath.ErrDots,
	} {
		_, err := urlpath.Normalize(path)
		assert.ErrorIs(t, err, want, path)
	}
}

// spell writes path in another way: each byte of how adds one change.
func spell(path string, how []byte) string {
	for i, h := range how[:min(len(how), 12)] {
		at := int(h>>4) * 7 % (len(path) + 1)
		path = path[:at] + [...]string{
			"/", "//", "/./", "/x/../", ";a", "/..;/", "%2f", "%5c", "%252f", "%2e", "..%2f", "%3b", "A",
			"%00",
			`\`, "%25",
		}[h&15] + path[at:]
		if i%2 == 1 && len(path) > 1 { // and escape a byte
			at := (at + 1) % len(path)
			if c := path[at]; c != '/' && c != '%' {
				path = path[:at] + "%" +
					string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15]) + path[at+1:]
			}
		}
	}
	return path
}

// FuzzSpellings compares spellings of a path: those that some server reads as one path must all
// have one Key in common, so that they are counted together, and what the server reads must be
// among the readings of each.
func FuzzSpellings(f *testing.F) {
	f.Add("/login", []byte{0x13}, []byte{0x05}, []byte{})
	f.Add("/a/b", []byte("/..;"), []byte("\x04\x16\x39"), []byte{0x4e})
	f.Add("/a;%2F..%2Fb", []byte{}, []byte{0x33, 0x21}, []byte{0x01})
	f.Add("//x/Login/", []byte{0x78}, []byte{0x0a, 0x5a}, []byte{0x2d})
	f.Add("a%3B%2Fb", []byte{}, []byte{}, []byte{})
	f.Add("x/%2e%2e/%61", []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, path string, one, two, three []byte) {
		if len(path) > 100 {
			return // the upstreams are slow
		}
		for _, u := range upstreams {
			read := make(map[string]string)            // the first spelling of what u reads
			common := make(map[string]map[string]bool) // the keys that all of its spellings have
			for _, how := range [][]byte{{}, one, two, three} {
				p := "/" + spell(path, how)
				if _, err := url.PathUnescape(p); err != nil {
					continue // net/http refuses it
				}
				keys, paths, ok := sets(p)
				reads, accepts := u.read(p)
				if !ok || !accepts {
					continue // refused
				}
				assert.True(t, paths[urlpath.TrimSlashes(shape(reads, u.escaped))],
					"%s reads %q as %q, which is none of %q", u.name, p, reads, paths)
				if u.nocase {
					reads = strings.TrimSuffix(strings.ToLower(reads), "/")
				}
				if common[reads] == nil {
					read[reads], common[reads] = p, keys
					continue
				}
				maps.DeleteFunc(common[reads], func(key string, _ bool) bool { return !keys[key] })
				assert.NotEmpty(t, common[reads], "%s reads %q and %q as %q, but they are counted apart",
					u.name, read[reads], p, reads)
			}
		}
	})
}

// shape returns what a server matches in the form of a Reading. Escapes in what is escaped stay if
// they are needed, and their percent signs are escaped if not.
func shape(read string, isEscaped bool) string {
	var b strings.Builder
	const kept = "!$&'()*+,-.:;=@_~/"
	for i := 0; i < len(read); i++ {
		c := read[i]
		if isEscaped && c == '%' {
			decoded := unescaped(read[i : i+3])
			if escaped := shape(decoded, false); len(escaped) == 3 || decoded == "/" {
				b.WriteString(strings.ToUpper(read[i : i+3]))
				i += 2
				continue
			}
		}
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte(kept, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + string("0123456789ABCDEF"[c>>4]) + string("0123456789ABCDEF"[c&15]))
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

func sets(path string) (keys, paths map[string]bool, ok bool) {
	all, err := urlpath.AllReadings(path)
	keys, paths = map[string]bool{}, map[string]bool{}
	for _, r := range all {
		keys[r.Key], paths[urlpath.TrimSlashes(r.Path)] = true, true
	}
	return keys, paths, err == nil
}

// TestOneReadingIsNotEnough is the negative control of FuzzSpellings: with one reading of each
// path, some server takes two paths for one that have different keys.
func TestOneReadingIsNotEnough(t *testing.T) {
	const p, q = "/a;%2F..%2Fb", "/b"
	assert.NotEqual(t, urlpath.Canonical(p), urlpath.Canonical(q))
	read, _ := upstreams[0].read(p)
	assert.Equal(t, q, read)
	keys, _, _ := sets(p)
	assert.True(t, keys[urlpath.Canonical(q)])
}
