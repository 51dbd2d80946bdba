package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// counted returns how much of a limit a caller has taken.
func counted(t *testing.T, m *weir.Limit, caller string) uint64 {
	t.Helper()
	out, err := m.Peek(t.Context(), caller)
	require.NoError(t, err)
	return out.TotalRequests
}

// A limit says all: its numbers and name are in the fields, and the middleware counts callers as
// the limit's own methods do, under the extracted keys.
func TestALimitStandsForItsNumbers(t *testing.T) {
	l := newLimiter(t, at(noon))
	tiers := l.Tiers(weir.Tier{Limit: 100, Duration: time.Minute})
	for what, row := range map[string]struct {
		limit  *weir.Limit
		set    func(*httplimit.Config)
		policy string
		counts *weir.Limit // nil: limit
	}{
		"without a name": {limit: l.FixedWindow().Limit(100, time.Minute), policy: `"100/1m";q=100;w=60`},
		"of a calendar": {limit: l.Calendar(weir.Month.From(17), nil).Limit(9),
			policy: `"9/month:17@UTC";q=9;w=2678400`},
		"with its name": {limit: l.FixedWindow().Limit(100, time.Minute).Named("api"),
			policy: `"api";q=100;w=60`},
		"with another name": {limit: l.FixedWindow().Limit(7, time.Minute).Named("api"),
			set:    func(c *httplimit.Config) { c.Name = "uploads" },
			policy: `"uploads";q=7;w=60`, counts: l.FixedWindow().Limit(7, time.Minute).Named("uploads")},
		"of tiers": {limit: tiers.Limit(),
			set:    func(c *httplimit.Config) { c.Name, c.Limit, c.Duration = "all", 100, time.Minute },
			policy: `"all";q=100;w=60`, counts: tiers.Limit().Named("all")},
	} {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: at(noon)}
		if row.set != nil {
			row.set(&cfg)
		}
		w, ran := serve(row.limit, cfg, from("203.0.113.7:1"))
		assert.Equal(t, 1, ran, what)
		assert.Equal(t, row.policy, w.Header().Get("RateLimit-Policy"), what)
		m := row.counts
		if m == nil {
			m = row.limit
		}
		assert.EqualValues(t, 1, counted(t, m, "203.0.113.7"), what)
	}
	assert.Equal(t, "ann", httplimit.Policy{Strategy: tiers.Limit()}.Key("ann"))
}

// A limit on another package's strategy counts under the keys that a policy of its name has had.
func TestALimitOfAnotherPackageKeepsItsKeys(t *testing.T) {
	fake := admitting(1, time.Second)
	m := fake.Limit(100, time.Minute)
	for _, m := range []*weir.Limit{m, m.Named("api")} {
		_, ran := serve(m, httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: at(noon)},
			from("203.0.113.7:1"))
		assert.Equal(t, 1, ran)
	}
	var keys []string
	for _, call := range fake.Calls() {
		keys = append(keys, call.Request.Key)
		assert.EqualValues(t, 100, call.Request.Limit)
		assert.Equal(t, time.Minute, call.Request.Duration)
	}
	assert.Equal(t, []string{weir.JoinKey("", "100/1m", "203.0.113.7"), weir.JoinKey("api", "203.0.113.7")},
		keys)
}

// Numbers that a limit has, or lacks, are a mistake of the program.
func TestLimitsThatCannotBe(t *testing.T) {
	l := newLimiter(t, at(noon))
	m, s := l.SlidingWindow().Limit(100, time.Minute), l.SlidingWindow()
	tiers := l.Tiers(weir.Tier{Limit: 100, Duration: time.Minute})
	for text, row := range map[string]struct {
		s   weir.Strategy
		set func(*httplimit.Config)
	}{
		`httplimit: the limit "sliding window, 100 in 1m" has numbers of its own: leave Limit and Duration ` +
			`zero`: {m, func(c *httplimit.Config) { c.Limit, c.Duration = 100, time.Minute }},
		`httplimit: the limit "tiers" has no numbers to show: set Limit and Duration`: {tiers.Limit(), nil},
		`httplimit: policy "0/1m" has no Limit and would deny everything; set Limit, or DenyAll if that is ` +
			`meant`: {s.Limit(0, time.Minute), nil},
		`httplimit: the policy name "año" is not 1 to 64 bytes of printable ASCII`: {m.Named("año"), nil},
		`httplimit: two policies are named "100/1m"`: {m, func(c *httplimit.Config) {
			c.Policies = []httplimit.Policy{{Strategy: l.FixedWindow().Limit(100, time.Minute)}}
		}},
	} {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr()}
		if row.set != nil {
			row.set(&cfg)
		}
		assert.PanicsWithValue(t, text, func() { httplimit.New(row.s, cfg) })
	}
}

// One limit may guard several routes, which share it. Equal limits without a name that are made
// apart are more likely a mistake.
func TestRoutesShareOneLimit(t *testing.T) {
	l, cfg := newLimiter(t, at(noon)), httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: at(noon)}
	m := l.SlidingWindow().Limit(2, time.Minute)
	one, other := httplimit.New(m, cfg)(&hello{}), httplimit.New(m, cfg)(&hello{})
	for i, h := range []http.Handler{one, other, one} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("203.0.113.7:1"))
		assert.Equal(t, []int{200, 200, 429}[i], w.Code)
	}
	assert.Panics(t, func() { httplimit.New(l.SlidingWindow().Limit(2, time.Minute), cfg) })
	assert.NotPanics(t, func() { httplimit.New(l.SlidingWindow().Limit(3, time.Minute), cfg) })
	assert.NotPanics(t, func() { httplimit.New(l.SlidingWindow().Limit(2, time.Minute).Named("a"), cfg) })
}

// Plans are values: each has its numbers and its name in the fields, and counts for itself.
func TestPlansAreLimits(t *testing.T) {
	l := newLimiter(t, at(noon))
	free := l.FixedWindow().Limit(10, time.Minute)
	plans := map[string]*weir.Limit{
		"gold":   l.TokenBucket(50).Limit(1000, time.Hour).Named("gold"),
		"silver": l.SlidingWindow().Limit(100, time.Hour),
	}
	cfg := httplimit.Config{
		Extractor: httplimit.Headers("X-User"), Now: at(noon),
		LimitFunc: func(r *http.Request) *weir.Limit { return plans[r.Header.Get("X-Plan")] },
	}
	var seen []httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = append(seen, d) }
	h := httplimit.New(free, cfg)(&hello{})
	for _, row := range []struct{ plan, policy, limit string }{
		{"", `"10/1m";q=10;w=60`, `"10/1m";r=9;t=60`},
		{"gold", `"gold";q=1000;w=3600`, `"gold";r=49;t=4`},
		{"silver", `"100/1h";q=100;w=3600`, `"100/1h";r=99;t=7200`},
		{"gold", `"gold";q=1000;w=3600`, `"gold";r=48;t=4`},
		{"no such plan", `"10/1m";q=10;w=60`, `"10/1m";r=8;t=60`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("1.2.3.4:1", "X-User: ann", "X-Plan: "+row.plan))
		assert.Equal(t, row.policy, w.Header().Get("RateLimit-Policy"), row.plan)
		assert.Equal(t, row.limit, w.Header().Get("RateLimit"), row.plan)
	}
	var names, strategies []string
	for _, d := range seen {
		names, strategies = append(names, d.Policy), append(strategies, d.Strategy)
	}
	assert.Equal(t, []string{"10/1m", "gold", "100/1h", "gold", "10/1m"}, names)
	assert.Equal(t, []string{"fixed window", "token bucket", "sliding window", "token bucket",
		"fixed window"}, strategies)
	assert.EqualValues(t, 2, counted(t, free, "ann"))
	assert.EqualValues(t, 1, counted(t, plans["silver"], "ann"))
}

// With a Name all plans count under it: a caller whose plan changes keeps its count.
func TestPlansOfOneNameCountTogether(t *testing.T) {
	l := newLimiter(t, at(noon))
	s := l.SlidingWindow()
	free, paid := s.Limit(2, time.Hour), s.Limit(3, time.Hour)
	h := httplimit.New(free, httplimit.Config{
		Extractor: httplimit.Headers("X-User"), Name: "plan", Now: at(noon),
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("X-Plan") == "paid" {
				return paid
			}
			return nil
		},
	})(&hello{})
	for i, plan := range []string{"free", "free", "free", "paid", "paid", "free"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("1.2.3.4:1", "X-User: ann", "X-Plan: "+plan))
		assert.Equal(t, []int{200, 200, 429, 200, 429, 429}[i], w.Code, i)
	}
	assert.Zero(t, counted(t, free, "ann"), "the limit without the name")
}

// A request takes once from a count to which two policies come, and is held to the lower limit of
// it.
func TestPoliciesOnOneCountTakeOnce(t *testing.T) {
	clock := at(noon)
	l := newLimiter(t, clock)
	m := l.SlidingWindow().Limit(4, time.Minute)
	named := func(n uint64) *weir.Limit { return l.FixedWindow().Limit(n, time.Minute).Named("plan") }
	fake := admitting(1, time.Second)
	elsewhere := fake.Limit(4, time.Minute)
	plan := func(m *weir.Limit) httplimit.Policy {
		return httplimit.Policy{LimitFunc: func(*http.Request) *weir.Limit { return m }}
	}
	other := plan(m)
	other.Extractor = httplimit.Headers("X-User")
	for name, row := range map[string]struct {
		policies []httplimit.Policy
		passes   int
	}{
		"one limit":      {[]httplimit.Policy{plan(m), plan(m)}, 4},
		"equal limits":   {[]httplimit.Policy{plan(m), plan(l.SlidingWindow().Limit(4, time.Minute))}, 4},
		"and a policy":   {[]httplimit.Policy{{Strategy: m}, plan(m), plan(named(9))}, 4},
		"a lower limit":  {[]httplimit.Policy{plan(named(5)), plan(named(3)), plan(m)}, 3},
		"a higher limit": {[]httplimit.Policy{plan(named(3)), plan(m), plan(named(5))}, 3},
		"another key":    {[]httplimit.Policy{plan(m), other}, 4},
		"a key of Keys": {[]httplimit.Policy{plan(m), {Strategy: m, Name: "keys",
			Keys: func(*http.Request) ([]string, error) { return []string{"b", "c"}, nil }}}, 4},
		"elsewhere": {[]httplimit.Policy{plan(elsewhere), plan(elsewhere)}, 10},
	} {
		h := httplimit.New(nil, httplimit.Config{
			Extractor: httplimit.Headers("X-Key"), Policies: row.policies, Now: clock,
		})(&hello{})
		passed := 0
		for range 10 { // by a key of its own in each row
			w := httptest.NewRecorder()
			h.ServeHTTP(w, from("203.0.113.7:1", "X-Key: "+name, "X-User: ann"))
			if w.Code == 200 {
				passed++
			}
		}
		assert.Equal(t, row.passes, passed, name)
	}
	assert.EqualValues(t, 4, counted(t, m, "ann"), "another key is another count")
	assert.Len(t, fake.Calls(), 10)
}

// Limits that a LimitFunc makes for each request are decided like others.
func TestPlansMadeForEachRequest(t *testing.T) {
	l := newLimiter(t, at(noon))
	n := uint64(0)
	h := httplimit.New(l.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Now: at(noon),
		LimitFunc: func(*http.Request) *weir.Limit { return l.FixedWindow().Limit(3, time.Hour) },
		CostFunc:  func(*http.Request) uint64 { n++; return n / 1500 },
	})(&hello{})
	for i := range 3000 { // more than are kept
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("203.0.113.7:1"))
		require.Equal(t, map[bool]int{true: 200, false: 429}[i < 3], w.Code, i)
	}
}

// Policies on limits count the same text as the key of different callers separately, also for the
// penalty box.
func TestLimitsOfUserAndOrganisation(t *testing.T) {
	l, clock := atNoon()
	cfg := httplimit.Config{
		Extractor: httplimit.Headers("X-User"), Now: clock.Now,
		Policies: []httplimit.Policy{{Strategy: l.FixedWindow().Limit(1, time.Minute).Named("org"),
			Extractor: httplimit.Headers("X-Org")}},
		DenyList: httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now}),
		Penalty: httplimit.Penalty{Strategy: l.FixedWindow(), Denials: 2, Within: time.Minute,
			For: time.Hour},
	}
	user := l.FixedWindow().Limit(3, time.Minute).Named("user")
	h := httplimit.New(user, cfg)(http.HandlerFunc(ok))
	assert.Equal(t, 200, respond(h, by("x", "x")).Code)
	assert.Equal(t, 429, respond(h, by("x", "x")).Code)
	assert.EqualValues(t, 1, counted(t, user, "x"))
	assert.Equal(t, 429, respond(h, by("y", "x")).Code, "the organisation's second denial")
	assert.Equal(t, 200, respond(h, by("x", "z")).Code, "the user is not listed")
	entries := cfg.DenyList.Entries()
	require.Len(t, entries, 1)
	assert.Equal(t, "x", entries[0].Key)
	assert.Equal(t, "org", entries[0].Policy)
}

// No caller can choose the key that a client's further keys share.
func TestNoCallerHasTheSharedKey(t *testing.T) {
	l := newLimiter(t, at(noon))
	cfg := httplimit.Config{Extractor: constant("\x00shared9:192.0.2.1"), Now: at(noon)}
	w, ran := serve(l.FixedWindow().Limit(5, time.Minute), cfg, from("203.0.113.7:1"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusBadRequest, w.Code)

	// Beyond MaxKeysPerClient the keys of a limit share one.
	m := l.FixedWindow().Limit(2, time.Minute)
	h := httplimit.New(m, httplimit.Config{Extractor: httplimit.Headers("X-Key"), Now: at(noon),
		MaxKeysPerClient: 1})(&hello{})
	for i, key := range []string{"a", "b", "c", "d", "a", "a"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("203.0.113.7:1", "X-Key: "+key))
		assert.Equal(t, []int{200, 200, 200, 429, 200, 429}[i], w.Code, i)
	}
}

// A limit on work in flight is Concurrency, and plans may have one each.
func TestConcurrencyOfLimits(t *testing.T) {
	l := newLimiter(t, at(noon))
	jobs := l.InFlight().Limit(1).Named("jobs")
	two := l.InFlight().Limit(2)
	cfg := hundred()
	cfg.Concurrency = httplimit.Policy{Strategy: jobs,
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("X-Plan") == "paid" {
				return two
			}
			return nil
		}}
	outer, inner := nested(l.FixedWindow(), cfg, from("203.0.113.7:1"), from("203.0.113.7:1"),
		from("203.0.113.7:1", "X-Plan: paid"))
	assert.Equal(t, http.StatusOK, outer.Code)
	assert.Equal(t, []int{429, 200}, []int{inner[0].Code, inner[1].Code})
	assert.Contains(t, inner[0].Header().Get("RateLimit"), `"jobs";r=0;t=1`)
	assert.Zero(t, counted(t, two.Named("jobs"), "203.0.113.7"), "it was released")
	assert.Zero(t, counted(t, jobs, "203.0.113.7"))
}

// A policy that does not apply takes nothing, and is in no field.
func TestPolicyThatDoesNotApply(t *testing.T) {
	fake := &weirtest.Fake{}
	cfg := hundred()
	cfg.Policies = []httplimit.Policy{{Name: "writes", Limit: 5, Duration: time.Minute, Strategy: fake,
		Applies: func(r *http.Request) bool { return r.Method != http.MethodGet }}}
	w, _ := serve(admitting(4, time.Minute), cfg, from("203.0.113.7:1"))
	assert.Equal(t, `"100/1m";q=100;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Empty(t, fake.Calls())
	r := from("203.0.113.7:1")
	r.Method = http.MethodPost
	cfg.Name = "all"
	w, _ = serve(admitting(4, time.Minute), cfg, r)
	assert.Equal(t, `"all";q=100;w=60, "writes";q=5;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Len(t, fake.Calls(), 1)
}
