package rules

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzPattern compares patterns with regular expressions.
func FuzzPattern(f *testing.F) {
	f.Add("a*b*c", "abc")
	f.Add("*aba*ab*", "abaab")
	f.Add("**", "")
	f.Fuzz(func(t *testing.T, text, value string) {
		if !isPattern(text) || len(text) > 50 {
			return
		}
		parts := strings.Split(text, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile("(?s)^" + strings.Join(parts, ".*") + "$")
		if err != nil { // invalid UTF-8
			return
		}
		p := compilePattern(text)
		if re.MatchString(value) != p.match(value, netip.Prefix{}) && strings.ToValidUTF8(value, "") == value {
			t.Errorf("%q on %q: %v", text, value, p.match(value, netip.Prefix{}))
		}
	})
}

// TestKeysDoNotCollide uses parts that would give equal keys if they were joined carelessly.
func TestKeysDoNotCollide(t *testing.T) {
	words := []string{"", "a", "aa", "a*", "1:a", ":", "1", "a1:a", "#", strings.Repeat("x", 300),
		strings.Repeat("x", 301)}
	shared := &Rule{shared: []string{"a*", ""}}
	seen := make(map[string]string)
	for _, domain := range words {
		for _, k := range words {
			for _, v := range words {
				for _, l := range words {
					for name, r := range map[string]*Rule{"own": nil, "shared": shared} {
						if r != nil && v != "aa" { // only these values share a counter
							continue
						}
						key := string(appendKey(nil, domain, []Entry{{Key: k, Value: v}, {Key: l, Value: v}}, r))
						from := strings.Join([]string{domain, k, v, l, name}, "|")
						require.Empty(t, seen[key], from)
						seen[key] = from
						assert.LessOrEqual(t, len(key), maxKeyLen)
					}
				}
				key := string(appendKey(nil, domain, []Entry{{Key: k, Value: v}}, nil))
				require.Empty(t, seen[key])
				seen[key] = "one"
			}
		}
	}
}

func TestSuggest(t *testing.T) {
	for _, row := range []struct{ word, want string }{
		{"ratelimit", "rate_limit"}, {"vlaue", "value"}, {"descriptor", "descriptors"},
		{"KEY", "key"}, {"x", ""}, {"algorithm", ""}, {"", ""}, {strings.Repeat("x", 100_000), ""},
	} {
		want := ""
		if row.want != "" {
			want = "; did you mean '" + row.want + "'?"
		}
		assert.Equal(t, want, suggest(row.word, descriptorKeys), row.word)
	}
}

// TestPause: a bounded amount is read in a second, and up to a megabyte is read every 200 ms.
func TestPause(t *testing.T) {
	for _, row := range []struct {
		work int
		want time.Duration
	}{{0, lookEvery}, {lookWork, lookEvery}, {2 * lookWork, 2 * lookEvery},
		{1e6 * lookWork, 1e6 * lookEvery}} {
		assert.Equal(t, row.want, (&source{work: row.work}).pause())
	}
	fsys := fstest.MapFS{"d/a.yaml": {Data: make([]byte, 100)}, "d/b.yaml": {Data: make([]byte, 50)},
		"d/c.txt": {}}
	assert.Equal(t, 2*fileWork+150+4*entryWork, (&Loader{}).read(fsys, []string{"d"}).work)
}
