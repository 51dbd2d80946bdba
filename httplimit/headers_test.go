package httplimit

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/doors/structuredfield"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
)

func TestCeilSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, -1: 0, -time.Hour: 0,
		math.MinInt64: 0,
		math.MaxInt64: 9223372037,
	} {
		assert.Equal(t, want, ceilSeconds(d), d)
	}
}

// The date of an instant is wrong if the wall clock was stepped after the instant's clock was made,
// and its distance to the present, which is by the monotonic clock, is not.
func TestDatesAfterAStepOfTheWallClock(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	in := 10 * time.Second
	end := now.Add(in)
	for name, row := range map[string]struct{ t, want time.Time }{
		"no step":                              {end, end},
		"two readings":                         {end.Add(-time.Millisecond), end.Add(-time.Millisecond)},
		"almost a second":                      {end.Add(time.Second - 1), end.Add(time.Second - 1)},
		"a second forward":                     {end.Add(-time.Second), end},
		"a second back":                        {end.Add(time.Second), end},
		"the first step, after a boot in 1970": {time.Unix(600, 0).UTC(), end},
	} {
		assert.Equal(t, row.want, dated(row.t, now, in), name)
	}
	now = time.Now()
	real, other := &Guard{realTime: true}, &Guard{}
	for _, off := range []time.Duration{-time.Hour, 0, 1, time.Hour} {
		at := now.Add(off)
		assert.Equal(t, at, onWall(real, at), "to the nanosecond")
		assert.Equal(t, at.Round(0), onWall(real, at.Round(0)))
		assert.Equal(t, at, onWall(other, at))
	}
	assert.True(t, onWall(real, time.Time{}).IsZero())
}

// FuzzRateLimitFields checks that for any Result the fields are Lists of Strings with Integer
// parameters in range and printable ASCII, and that a denial's Retry-After is at least 1 and not
// before any t.
func FuzzRateLimitFields(f *testing.F) {
	f.Add("burst", "daily", uint64(10), uint64(1000), uint64(3), uint64(1000), int64(time.Second),
		int64(-5), true, false, int64(0))
	f.Add(`a"b\c`, " ", uint64(math.MaxUint64), uint64(0), uint64(0), uint64(math.MaxUint64),
		int64(math.MaxInt64), int64(math.MinInt64), false, false, int64(9))
	f.Fuzz(func(t *testing.T, name1, name2 string, limit1, limit2, total1, total2 uint64, left1,
		left2 int64,
		ok1, ok2 bool, jitter int64) {
		now := time.Unix(1_800_000_000, 0)
		jitter = max(0, jitter%1000)
		g := &Guard{cfg: Config{Now: func() time.Time { return now }}}
		c := answer{asks: asks{guard: g, states: []state{
			fuzzState(name1, limit1, total1, now, left1, ok1),
			fuzzState(name2, limit2, total2, now, left2, ok2),
		}}}
		c.kind, c.status, c.jitter = Denied, 429, time.Duration(jitter)*time.Second
		c.observe(t.Context(), false)
		policies := checkField(t, string(appendPolicies(nil, c.states)))
		require.Len(t, policies, 2)
		line := string(appendRemaining(nil, c.states, true, c.jitter))
		limits := checkField(t, strings.TrimPrefix(line, comma))
		require.Len(t, limits, 2)
		after := ceilSeconds(c.retryAfter())
		denied := c.states[0].denied || c.states[1].denied
		require.Equal(t, denied && !neverPasses(c.states), after > 0)
		for i, it := range limits {
			require.Equal(t, c.states[i].shown.name, it.Value.Text)
			if seconds, ok := it.Integer("t"); ok && denied && after > 0 {
				require.LessOrEqual(t, seconds, after)
				require.GreaterOrEqual(t, seconds, int64(1))
			}
		}
	})
}

func neverPasses(states []state) bool {
	for _, s := range states {
		if s.ask.Denies() && s.ask.Op.Result.ExpiresAt.IsZero() {
			return true
		}
	}
	return false
}

// fuzzState returns the state of a policy; left 0 means a zero ExpiresAt.
func fuzzState(name string, limit, total uint64, now time.Time, left int64, ok bool) state {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	if len(name) > maxNameLen || name == "" {
		name = "n"
	}
	res := weir.Result{TotalRequests: total}
	if ok {
		res.State = weir.Allow
	}
	if left != 0 {
		res.ExpiresAt = now.Add(time.Duration(left))
	}
	p := compile(Policy{Name: name, Limit: limit, DenyAll: limit == 0, Duration: time.Minute},
		constant{res: &res}, http.StatusTooManyRequests, false)
	decided := limits.Attempts{p.template}
	decided[0].Op.Request = weir.Request{Key: "k", Limit: limit, Duration: time.Minute}
	if _, err := decided.Take(context.Background(), nil); err != nil {
		panic(err)
	}
	return state{policy: p, ask: &decided[0], shown: p.shown}
}

func checkField(t *testing.T, field string) []structuredfield.Member {
	t.Helper()
	for i := range len(field) {
		require.True(t, ' ' <= field[i] && field[i] <= '~', field)
	}
	members, ok := structuredfield.ParseList(field)
	require.True(t, ok, field)
	for _, m := range members {
		require.Equal(t, structuredfield.String, m.Value.Kind)
		for name := range m.Params {
			require.Contains(t, []string{"q", "w", "r", "t"}, name)
			_, ok := m.Integer(name)
			require.True(t, ok, field)
		}
	}
	return members
}

// The serialiser allocates what net/http requires: a slice for the values, and the string of the
// field that changes with each request. RateLimit-Policy is built once.
func TestSerialiserAllocations(t *testing.T) {
	g := NewGuard(constant{res: allowed},
		Config{Extractor: RemoteAddr(), Limit: 1_000_000, Duration: time.Minute,
			Policies: []Policy{{Name: "daily", Limit: 5_000_000, Duration: 24 * time.Hour}}})
	c := newCall(g)
	for i := range c.states {
		s := &c.states[i]
		s.ask.Op.Request = weir.Request{Limit: s.Limit, Duration: s.Duration}
	}
	_, err := c.limits.Take(t.Context(), nil)
	require.NoError(t, err)
	c.decider = 0
	header := make(http.Header, 8)
	write := func() {
		c.limits[0].Op.Result.TotalRequests++ // the numbers differ each time
		clear(header)
		c.observe(t.Context(), false)
		f := fields{header: header, values: make([]string, len(styleFields[g.cfg.Headers]))}
		c.setFields(&f)
	}
	write() // the buffers grow once
	assert.Equal(t, 2.0, testing.AllocsPerRun(1000, write))
}

// constant is a Counter with one answer.
type constant struct{ res *weir.Result }

func (constant) About() *weir.About { return &answering }

var answering = weir.About{Verbs: weir.VerbsOf(weir.OpTake, weir.OpReturn)}

func (a constant) Run(context.Context, *weir.Request) (*weir.Result, error) { return a.res, nil }

func (a constant) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		op.Result, op.Err = *a.res, nil
	}
}

var allowed = &weir.Result{State: weir.Allow, TotalRequests: 1,
	ExpiresAt: time.Now().Add(time.Hour)}

// An admission allocates the joined key, the writer with the values, and the RateLimit field. A
// sliding window also allocates the Result of a Peek, for the time of the next quota. Callers
// alternate, so the key of the last request cannot be reused.
func TestAdmissionAllocations(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	if slow.Race {
		return // sync.Pool drops items at random then
	}
	for _, s := range []weir.Strategy{
		constant{res: allowed}, limiter.FixedWindow(), limiter.SlidingWindow(), limiter.TokenBucket(0),
		limiter.FixedWindow().Limit(1_000_000, time.Minute),
		limiter.TokenBucket(0).Limit(1_000_000, time.Minute),
	} {
		cfg := Config{Extractor: RemoteAddr()}
		if _, ok := s.(*weir.Limit); !ok {
			cfg.Limit, cfg.Duration = 1_000_000, time.Minute
		}
		guard := New(s, cfg)(noop{})
		w := &bareWriter{header: make(http.Header, 8)}
		requests := [2]*http.Request{{RemoteAddr: "203.0.113.7:5000"}, {RemoteAddr: "[2001:db8::1]:5000"}}
		guard.ServeHTTP(w, requests[0]) // one extra, so that consecutive requests have different numbers
		i := 0
		perRequest := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			guard.ServeHTTP(w, requests[i%2])
			i++
		})
		most := 3.0
		if weir.CounterOf(s).About().Name == "sliding window" {
			most = 4
		}
		assert.LessOrEqual(t, perRequest, most, "%T", s)
	}
}

type noop struct{}

func (noop) ServeHTTP(http.ResponseWriter, *http.Request) {}

type bareWriter struct{ header http.Header }

func (w *bareWriter) Header() http.Header         { return w.header }
func (w *bareWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *bareWriter) WriteHeader(int)             {}

func TestAppendPartIsJoinKey(t *testing.T) {
	for _, parts := range [][]string{{""}, {"a"}, {"a", ""}, {"", "a"}, {"100/1m", "203.0.113.7"},
		{"1:a", "\x00\xff", strings.Repeat("k", 1024)}} {
		var key []byte
		for _, p := range parts {
			key = appendPart(key, p)
		}
		assert.Equal(t, weir.JoinKey(parts...), string(key))
	}
}

// A LimitFunc costs no allocation, and another plan than that of the last request one: the key.
func TestPlansAllocateLittle(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	if slow.Race {
		return // sync.Pool drops items at random then
	}
	plans := [2]*weir.Limit{limiter.FixedWindow().Limit(1_000_000, time.Minute),
		limiter.TokenBucket(0).Limit(2_000_000, time.Minute)}
	i := 0
	perRequest := func(next func(*http.Request) *weir.Limit) float64 {
		guard := New(plans[0], Config{Extractor: RemoteAddr(), LimitFunc: next})(noop{})
		w := &bareWriter{header: make(http.Header, 8)}
		r := &http.Request{RemoteAddr: "203.0.113.7:5000"}
		return testing.AllocsPerRun(1000, func() {
			clear(w.header)
			guard.ServeHTTP(w, r)
			i++
		})
	}
	one := perRequest(func(*http.Request) *weir.Limit { return plans[0] })
	assert.LessOrEqual(t, perRequest(func(*http.Request) *weir.Limit { return plans[i%2] }), one+1)
	assert.LessOrEqual(t, one, 4.0)
}
