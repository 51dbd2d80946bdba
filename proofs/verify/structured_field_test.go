package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// Transport uses a RateLimit field if and only if it is a valid structured field (RFC 9651). The
// reference is httpsfv.

// pause returns how long a Transport pauses for the given lines of a RateLimit field.
func pause(lines ...string) time.Duration {
	header := http.Header{"Ratelimit": lines}
	t := &httpclient.Transport{NoWait: true, MaxPause: 1 << 62,
		Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody, Request: r},
				nil
		})}
	now := time.Unix(start, 0)
	t.Now = func() time.Time { return now }
	r, err := http.NewRequest(http.MethodGet, "http://a.example/", nil)
	if err != nil {
		panic(err)
	}
	if _, err := t.RoundTrip(r); err != nil {
		panic(err)
	}
	_, err = t.RoundTrip(r)
	var limited *httpclient.LimitError
	if !errors.As(err, &limited) {
		return 0
	}
	return limited.Wait
}

type roundTrip func(*http.Request) (*http.Response, error)

func (a roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// wantPause returns the pause that the reference reads from a List.
func wantPause(field string) time.Duration {
	list, err := httpsfv.UnmarshalList([]string{field})
	if err != nil {
		return 0
	}
	var longest time.Duration
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			continue
		}
		switch item.Value.(type) {
		case string, httpsfv.Token:
		default:
			continue
		}
		r, _ := item.Params.Get("r")
		t, _ := item.Params.Get("t")
		if r, ok := r.(int64); !ok || r != 0 {
			continue
		}
		switch t := t.(type) {
		case int64:
			longest = max(longest, wantSeconds(t))
		case float64:
			longest = max(longest, time.Duration(math.Round(t*1000))*time.Millisecond)
		}
	}
	return longest
}

// wantSeconds returns the pause for an Integer that is a delta or an instant.
func wantSeconds(n int64) time.Duration {
	switch {
	case n < 1e9:
		return time.Duration(n) * time.Second
	case n < 1e11:
		return time.Unix(n, 0).Sub(time.Unix(start, 0))
	}
	return 1 << 62 // MaxPause
}

// start is the clock's reading.
const start = 1_800_000_000

// Parts of members; the last ones of each list are invalid.
var (
	values = []string{
		`"a"`, `"b\"c"`, `"\\"`, `tok`, `*t/:x`, `("a" b)`, `("a";r=0;t=9 "b")`, `()`, `1`, `-1.5`, `?0`,
		`:YQ==:`, `@7`,
		`"\a"`, `"`, `(`, `("a""b")`, `?2`, `é`, `1.`, "\x7f", ``,
	}
	params = []string{
		`;r=0`, `;r=0`, `;t=5`, `;t=60`, `;r=1`, `; t=7`, `;r="0"`, `;r=0.0`, `;r=-0`, `;t=-5`, `;r`,
		`;x=?1`,
		`;x=@1659578233`, `;x=:YQ==:`,
		`;x=::`, `;x=%"f%c3%bc"`, `;x=1.5`, `; y=*`, `;  z`, `;t=999999999999999`, `;r=00`,
		`;t=2.5`, `;t=7.125`, `;t=-2.5`, `;t=1800000025`, `;t=1799999999`,
		`;x=?2`, `;x=@1.5`, `;x=%"%C3"`, `;x=%"%c3"`, `;x=1.`, `;x=1.2345`, `;X=1`, ` ;z`, `;=1`,
		`;t=1000000000000000`, `;`, "\t;r=0",
	}
	separators = []string{`,`, `, `, "\t,\t", ` , `, ` `, `,,`, `;`}
)

// fields generates fields that are valid more often than not.
func fields(t *rapid.T) string {
	pick := func(from []string, wrong int, label string) string {
		if rapid.IntRange(0, 9).Draw(t, label+" wrong") > 0 {
			from = from[:len(from)-wrong]
		}
		return rapid.SampledFrom(from).Draw(t, label)
	}
	var b strings.Builder
	for i := range rapid.IntRange(1, 4).Draw(t, "members") {
		if i > 0 {
			b.WriteString(pick(separators, 3, "separator"))
		}
		b.WriteString(pick(values, 9, "value"))
		for range rapid.IntRange(0, 4).Draw(t, "params") {
			b.WriteString(pick(params, 12, "param"))
		}
	}
	return b.String()
}

func TestRateLimitFieldsAreReadAsTheReferenceDoes(t *testing.T) {
	checks(t, slow.N(1_000, 20_000, 5_000_000))
	asks, invalid := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		field := fields(t)
		want := wantPause(field)
		if _, err := httpsfv.UnmarshalList([]string{field}); err != nil {
			invalid++
		}
		if want > 0 {
			asks++
		}
		require.Equal(t, want, pause(field), "%q", field)
	})
	assert.Greater(t, asks, 30, "fields that ask for a pause")
	assert.Greater(t, invalid, 30, "invalid fields")
}

// Each byte in each place where the grammar restricts it.
func TestEachByteIsAcceptedWhereTheReferenceDoes(t *testing.T) {
	for c := range 256 {
		for _, form := range []string{
			`%s"a";r=0;t=5`, `"a%s";r=0;t=5`, `"a\%s";r=0;t=5`, `"a"%s;r=0;t=5`, `"a";%sr=0;t=5`,
			`"a";r%s=0;t=5`,
			`"a";r=%s0;t=5`, `"a";r=0%s;t=5`,
			`%s;r=0;t=5`, `a%s;r=0;t=5`, `"a";x=%s;r=0;t=5`, `"a";%s;r=0;t=5`, `"a";x%s;r=0;t=5`,
			`"a";x=?%s;r=0;t=5`,
			`"a";x=%%"%s";r=0;t=5`,
			`"a";x=%%"%%%s0";r=0;t=5`, `"a";x=%%"%%6%s";r=0;t=5`, `"a";r=0;t=5%s`, `"b"%s"a";r=0;t=5`,
			`(%s);r=0, "a";r=0;t=5`, `("b"%s"b"), "a";r=0;t=5`,
		} {
			field := fmt.Sprintf(form, string([]byte{byte(c)}))
			require.Equal(t, wantPause(field), pause(field), "%q", field)
		}
	}
}

func TestNumbersOfEachLength(t *testing.T) {
	for whole := range 18 {
		for fraction := range 6 {
			for _, sign := range []string{"", "-", "--"} {
				for _, dot := range []string{"", ".", ".."} {
					field := `"a";x=` + sign + strings.Repeat("1", whole) + dot + strings.Repeat("1", fraction) +
						`;r=0;t=5`
					require.Equal(t, wantPause(field), pause(field), "%q", field)
				}
			}
		}
	}
}

// suiteVar names a directory with the JSON files of the HTTP working group's
// structured-field-tests.
const suiteVar = "STRUCTURED_FIELD_TESTS"

// The working group's test vectors. They are not a Go module, so they cannot be required here.
func TestStructuredFieldSuite(t *testing.T) {
	dir := os.Getenv(suiteVar)
	if dir == "" {
		t.Skip(suiteVar + " names no directory with the suite")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	ran := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var vectors []struct {
			Name     string   `json:"name"`
			Raw      []string `json:"raw"`
			Type     string   `json:"header_type"`
			MustFail bool     `json:"must_fail"`
			CanFail  bool     `json:"can_fail"`
		}
		require.NoError(t, json.Unmarshal(text, &vectors), name)
		for _, v := range vectors {
			lines, ok := asRateLimit(v.Raw, v.Type)
			if v.CanFail || !ok {
				continue
			}
			want := 5 * time.Second
			if v.MustFail {
				want = 0
			}
			assert.Equal(t, want, pause(lines...), "%s: %s: %q", filepath.Base(name), v.Name, lines)
			ran++
		}
	}
	assert.Positive(t, ran)
	t.Logf("%d vectors", ran)
}

// asRateLimit turns a vector into a RateLimit field that is valid and asks for five seconds if and
// only if the vector is valid.
func asRateLimit(raw []string, kind string) (lines []string, ok bool) {
	blank := strings.TrimSpace(strings.Join(raw, "")) == ""
	switch {
	case kind == "list" && !blank:
		return append(append(lines, raw...), `"p";r=0;t=5`), true
	case kind == "dictionary" && !blank:
		return append(append(lines, raw...), `limit=1, remaining=0, reset=5`), true
	case kind == "item" && len(raw) == 1 && !strings.Contains(raw[0], ",") && !blank:
		return []string{raw[0], `"p";r=0;t=5`}, true
	}
	return nil, false // an empty List is valid, but nothing can follow it
}
