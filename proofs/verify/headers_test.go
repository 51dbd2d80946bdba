package verify

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// policy is what the client should read of one policy.
type policy struct {
	name   string
	limit  uint64
	period time.Duration
	total  uint64
	state  weir.State
	left   time.Duration // until ExpiresAt; 0: the zero time
}

// fieldsOf sends one request through a middleware with these policies and returns the header of the
// answer.
func fieldsOf(policies ...policy) http.Header {
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: func() time.Time { return noon }}
	for _, p := range policies {
		fake := &weirtest.Fake{Answer: func(context.Context, *weir.Request, time.Time) (weir.Result,
			error) {
			res := weir.Result{State: p.state, TotalRequests: p.total}
			if p.left != 0 {
				res.ExpiresAt = noon.Add(p.left)
			}
			return res, nil
		}}
		cfg.Policies = append(cfg.Policies, httplimit.Policy{
			Name: p.name, Limit: p.limit, DenyAll: p.limit == 0, Duration: p.period, Strategy: fake,
		})
	}
	w := httptest.NewRecorder()
	httplimit.New(&weirtest.Fake{}, cfg)(
		http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Header()
}

func list(t *testing.T, header http.Header, name string) map[string]httpsfv.Item {
	t.Helper()
	members, err := httpsfv.UnmarshalList(header.Values(name))
	require.NoError(t, err, header)
	items := make(map[string]httpsfv.Item)
	for _, m := range members {
		item, ok := m.(httpsfv.Item)
		require.True(t, ok)
		policyName, ok := item.Value.(string) // an sf-string; a token would be another type
		require.True(t, ok, item.Value)
		items[policyName] = item
	}
	require.Len(t, items, len(members))
	return items
}

func integer(t *testing.T, it httpsfv.Item, name string) (n int64, ok bool) {
	t.Helper()
	v, ok := it.Params.Get(name)
	if !ok {
		return 0, false
	}
	n, isInt := v.(int64)
	require.True(t, isInt, v)
	return n, true
}

func TestTheFieldsAreThoseOfTheDraft(t *testing.T) {
	burst := policy{"burst", 10, time.Second, 1, weir.Allow, 300 * time.Millisecond}
	daily := policy{`the "daily" \ one`, 1000, 24 * time.Hour, 588, weir.Allow, 10 * time.Hour}
	header := fieldsOf(burst, daily)

	policies := list(t, header, "RateLimit-Policy")
	require.Len(t, policies, 2)
	for _, p := range []policy{burst, daily} {
		quota, _ := integer(t, policies[p.name], "q")
		window, _ := integer(t, policies[p.name], "w")
		assert.EqualValues(t, p.limit, quota)
		assert.EqualValues(t, p.period/time.Second, window)
	}
	limits := list(t, header, "RateLimit")
	for _, row := range []struct {
		name string
		r, t int64
	}{{burst.name, 9, 1}, {daily.name, 412, 36000}} {
		remaining, _ := integer(t, limits[row.name], "r")
		reset, _ := integer(t, limits[row.name], "t")
		assert.Equal(t, row.r, remaining)
		assert.Equal(t, row.t, reset)
	}
}

// Whatever the figures, both fields parse, and say what was decided.
func TestWhateverIsDecidedParses(t *testing.T) {
	rng := rand.New(rand.NewPCG(9651, 1))
	for range 2_000 {
		a, b := randomPolicy(rng, "a"), randomPolicy(rng, "b")
		header := fieldsOf(a, b)
		policies, limits := list(t, header, "RateLimit-Policy"), list(t, header, "RateLimit")
		for _, p := range []policy{a, b} {
			quota, ok := integer(t, policies[p.name], "q")
			require.True(t, ok)
			require.EqualValues(t, min(p.limit, 999_999_999_999_999), quota)
			window, ok := integer(t, policies[p.name], "w")
			require.Equal(t, p.period%time.Second == 0, ok)
			require.True(t, !ok || time.Duration(window)*time.Second == p.period)
			remaining, ok := integer(t, limits[p.name], "r")
			require.True(t, ok)
			require.GreaterOrEqual(t, remaining, int64(0))
		}
		after, retry := header["Retry-After"]
		for _, p := range []policy{a, b} {
			reset, ok := integer(t, limits[p.name], "t")
			require.GreaterOrEqual(t, reset, int64(0))
			if retry && ok {
				seconds, err := strconv.ParseInt(after[0], 10, 64)
				require.NoError(t, err)
				require.GreaterOrEqual(t, seconds, reset, header)
			}
		}
	}
}

func randomPolicy(rng *rand.Rand, name string) policy {
	for range rng.IntN(5) {
		name += string(rune(' ' + rng.IntN('~'-' '+1)))
	}
	p := policy{name: name, period: time.Duration(1+rng.IntN(100_000)) * time.Millisecond,
		state: weir.State(rng.IntN(2))}
	if rng.IntN(2) == 0 {
		p.period = p.period.Truncate(time.Second) + time.Second
	}
	figures := []uint64{0, 1, rng.Uint64N(1000), rng.Uint64(), math.MaxUint64}
	p.limit, p.total = figures[rng.IntN(len(figures))], figures[rng.IntN(len(figures))]
	lefts := []time.Duration{0, 1, -time.Hour, time.Duration(rng.Int64N(int64(time.Hour))),
		math.MaxInt64}
	p.left = lefts[rng.IntN(len(lefts))]
	return p
}

// The parser is a judge: what weir must not write, it refuses.
func TestTheParserRefusesWhatTheDraftForbids(t *testing.T) {
	for _, bad := range []string{`"a";q=1000000000000000`, `"a;q=1`, `"añ";q=1`, `"a";q=1,`,
		`"a";q="`} {
		_, err := httpsfv.UnmarshalList([]string{bad})
		assert.Error(t, err, bad)
	}
}
