package rules_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/weirtest"
)

// concurrent is a file with a rule for requests of a user in flight, the given settings after it in
// its rate_limit, and rates beside it.
func concurrent(more string) string {
	return `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: in_flight, requests_per_unit: 1` + more + `}}
  - {key: rate, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: in_flight, requests_per_unit: 1}}
  - {key: replacing, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: places}]}}
  - {key: replaced, rate_limit: {unit: in_flight, requests_per_unit: 1, name: places}}
---
domain: d
rate_limits:
  - actions: [{request_headers: {header_name: User, descriptor_key: user}}]
  - actions: [{request_headers: {header_name: Rate, descriptor_key: rate}}]
  - actions: [{request_headers: {header_name: Shadow, descriptor_key: shadow}}]
  - actions: [{request_headers: {header_name: Replacing, descriptor_key: replacing}}]
  - actions: [{request_headers: {header_name: Replaced, descriptor_key: replaced}}]
`
}

// nestedIn returns the status of a request, and those of others that are sent while it is in
// flight.
func nestedIn(e *rules.Engine, outer []string, inner ...[]string) (codes []int) {
	var h http.Handler
	depth := 0
	h = rules.Middleware(e, httplimit.Config{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if depth++; depth > 1 {
			return
		}
		for _, header := range inner {
			codes = append(codes, get(h, "/", header...).Code)
		}
	}))
	return append([]int{get(h, "/", outer...).Code}, codes...)
}

// A second request of a user is denied as long as the first is in flight.
func TestRequestsInFlightByRules(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	begun, end := make(chan bool), make(chan bool)
	h := rules.Middleware(w.engine, httplimit.Config{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-end
	}))
	first := make(chan *httptest.ResponseRecorder)
	start := func(user string) {
		go func() { first <- get(h, "/", "User", user) }()
		<-begun
	}
	start("ann")
	denied := get(h, "/", "User", "ann")
	assert.Equal(t, 429, denied.Code)
	assert.Equal(t, "1", denied.Header().Get("Retry-After"))
	assert.Equal(t, `"user";q=1;qu="concurrent-requests"`, denied.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"user";r=0;t=1`, denied.Header().Get("RateLimit"))
	assert.Contains(t, denied.Body.String(), `"violated-policies":["user"]`)
	w.now = w.now.Add(time.Hour)
	assert.Equal(t, 429, get(h, "/", "User", "ann").Code, "longer than the lease")
	start("bob")
	for range 2 {
		end <- true
		answer := <-first
		assert.Equal(t, 200, answer.Code)
		assert.Equal(t, `"user";r=0`, answer.Header().Get("RateLimit"))
	}
	start("ann")
	end <- true
	assert.Equal(t, 200, (<-first).Code)
}

const threeInFlight = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: in_flight, " +
	"requests_per_unit: 3}}]\n" +
	"rate_limits: [{actions: [{request_headers: {header_name: User, descriptor_key: user}}]}]\n"

// mostInFlight has 16 callers send requests of one user, and returns how many were in flight at one
// time and how many were admitted.
func mostInFlight(w *world) (most, admitted int64) {
	var mu sync.Mutex
	var now int64
	add := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most, admitted = max(most, now), admitted+max(0, n)
	}
	h := rules.Middleware(w.engine, httplimit.Config{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		add(1)
		defer add(-1)
		time.Sleep(10 * time.Microsecond) // the work in flight
	}))
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 200 {
				get(h, "/", "User", "ann")
			}
		})
	}
	callers.Wait()
	return most, admitted
}

func TestNeverMoreThanTheRuleInFlight(t *testing.T) {
	w := newWorld(t, threeInFlight, rules.Config{})
	most, admitted := mostInFlight(w)
	assert.LessOrEqual(t, most, int64(3))
	assert.Greater(t, admitted, int64(3), "places are free again")
	assert.EqualValues(t, 3, peek(w, "user=ann"))
}

// hasty returns s, which releases a place at once.
func hasty(s *weir.InFlight) weir.Strategy {
	return ops.Through(s, func(_ context.Context, op *weir.Op, next func()) {
		next()
		if op.Verb == weir.OpHold && op.Err == nil && op.Result.Allowed() {
			op.Verb = weir.OpRelease
			next()
			op.Verb = weir.OpHold
		}
	})
}

// TestRulesInFlightControlIsRejected is the negative control.
func TestRulesInFlightControlIsRejected(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	w := newWorld(t, threeInFlight,
		rules.Config{Strategies: wrapped(limiter, hasty)})
	most, _ := mostInFlight(w)
	assert.Greater(t, most, int64(3))
}

// wrapped returns the strategies of limiter, and those for requests in flight as wrap returns them.
func wrapped(limiter *weir.Limiter, wrap func(*weir.InFlight) weir.Strategy) rules.Strategies {
	return func(m rules.Method) (weir.Strategy, error) {
		if m.Algorithm == rules.InFlight {
			return wrap(limiter.InFlight()), nil
		}
		return rules.StrategiesOf(limiter)(m)
	}
}

// peek returns what is left of a rule.
func peek(w *world, descriptor string) uint64 {
	return w.ask(w.hits(0, descriptor)).Statuses[0].Remaining
}

// A place is free again after a panic of the handler, and of a hook.
func TestAPanicReleasesPlaces(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") })
	assert.PanicsWithValue(t, "handler", func() {
		get(rules.Middleware(w.engine, httplimit.Config{})(panics), "/", "User", "ann")
	})
	assert.EqualValues(t, 1, peek(w, "user=ann"))

	onDecision := rules.Middleware(w.engine, httplimit.Config{
		OnDecision: func(*http.Request, httplimit.Decision) { panic("decision") }})
	assert.PanicsWithValue(t, "decision", func() { get(onDecision(hello), "/", "User", "ann") })
	assert.EqualValues(t, 1, peek(w, "user=ann"))

	onResponse := rules.NewGuard(rules.Decider{Engine: w.engine,
		OnResponse: func(*http.Request, *rules.Response) { panic("response") }}, httplimit.Config{})
	assert.PanicsWithValue(t, "response", func() { get(onResponse.Wrap(hello), "/", "User", "ann") })
	assert.EqualValues(t, 1, peek(w, "user=ann"))
}

// A hijacked connection holds its place until it is closed.
func TestHijackedConnectionsHoldPlacesOfRules(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	conns := make(chan net.Conn)
	srv := httptest.NewServer(rules.Middleware(w.engine, httplimit.Config{})(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			conns <- conn
		}
	})))
	defer srv.Close()
	client, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nUser: ann\r\n\r\n"))
	require.NoError(t, err)
	conn := <-conns
	assert.Equal(t, []int{429}, []int{get(rules.Middleware(w.engine, httplimit.Config{})(hello), "/", "User", "ann").Code})
	require.NoError(t, conn.Close())
	assert.Eventually(t, func() bool {
		return peek(w, "user=ann") == 1
	}, 20*time.Second, time.Millisecond)
}

// What one limit denies takes nothing from the others.
func TestPlacesAndRatesOfRulesAreAllOrNothing(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	ann, both := []string{"User", "ann"}, []string{"User", "ann", "Rate", "a"}
	assert.Equal(t, []int{200, 429}, nestedIn(w.engine, ann, both))
	assert.EqualValues(t, 2, peek(w, "rate=a"), "the denial of a place takes nothing")
	for range 2 {
		assert.Equal(t, []int{200}, nestedIn(w.engine, both))
	}
	assert.Equal(t, []int{429}, nestedIn(w.engine, both), "the rate")
	assert.EqualValues(t, 1, peek(w, "user=ann"), "no place is held")
	assert.Equal(t, []int{200, 429, 200}, nestedIn(w.engine, ann, both, []string{"User", "bob"}))
}

func TestPlacesOfShadowedAndReplacedRules(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	shadow := []string{"Shadow", "a"}
	assert.Equal(t, []int{200, 200, 200}, nestedIn(w.engine, shadow, shadow, shadow))
	assert.EqualValues(t, 1, peek(w, "shadow=a"))
	replaced, both := []string{"Replaced", "a"}, []string{"Replaced", "a", "Replacing", "a"}
	assert.Equal(t, []int{200, 429, 200}, nestedIn(w.engine, replaced, replaced, both))
	assert.EqualValues(t, 1, peek(w, "replaced=a"))

	w = newWorld(t, concurrent(""), rules.Config{Shadow: true})
	ann := []string{"User", "ann"}
	assert.Equal(t, []int{200, 200, 200}, nestedIn(w.engine, ann, ann, ann))
	assert.EqualValues(t, 1, peek(w, "user=ann"))
}

// A decision without a release takes no place, and says so.
func TestDecideTakesNoPlace(t *testing.T) {
	w := newWorld(t, concurrent(""), rules.Config{})
	request := func(d rules.Descriptor) *rules.Request {
		return &rules.Request{Domain: "d", Descriptors: []rules.Descriptor{w.hit("rate=a"), d}}
	}
	_, err := w.engine.Decide(t.Context(), request(w.hit("user=ann")))
	require.ErrorIs(t, err, rules.ErrInFlight)
	assert.ErrorContains(t, err, "rules: user: ")
	back := w.hit("user=ann")
	back.GiveBack = true
	for _, hold := range []bool{false, true} {
		if hold {
			_, err = w.engine.Hold(t.Context(), request(back), new(rules.Response))
		} else {
			_, err = w.engine.Decide(t.Context(), request(back))
		}
		assert.ErrorIs(t, err, rules.ErrInFlight)
	}
	assert.EqualValues(t, 2, peek(w, "rate=a"), "nothing was counted")
	assert.EqualValues(t, 1, peek(w, "user=ann"))

	resp := new(rules.Response)
	held, err := w.engine.Hold(t.Context(), request(w.hit("user=ann")), resp)
	require.NoError(t, err)
	require.Len(t, held, 1)
	assert.True(t, resp.Allowed())
	denied, err := w.engine.Hold(t.Context(), request(w.hit("user=ann")), resp)
	require.NoError(t, err)
	assert.False(t, resp.Allowed())
	assert.Empty(t, denied)
	require.NoError(t, held[0].Release(t.Context()))
	assert.EqualValues(t, 1, peek(w, "user=ann"))
	assert.EqualValues(t, 1, peek(w, "rate=a"))
}

func TestEnginesThatCannotHold(t *testing.T) {
	set := load(t, concurrent(""))
	_, err := rules.New(set, rules.Config{CountDenied: true})
	assert.ErrorContains(t, err, "user: Config.CountDenied does not apply to the unit in_flight")
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	_, err = rules.New(set, rules.Config{Strategies: func(rules.Method) (weir.Strategy, error) {
		return limiter.FixedWindow(), nil
	}})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "rules: no strategy for in flight: ")
}

// failing returns s, whose places cannot be released.
func failing(s *weir.InFlight) weir.Strategy {
	return ops.Through(ops.Afar(s), func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpRelease {
			op.Err = assert.AnError
			return
		}
		next()
	})
}

func TestAFailedReleaseOfARuleIsLogged(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	engine, err := rules.New(load(t, concurrent("")),
		rules.Config{Strategies: wrapped(limiter, failing)})
	require.NoError(t, err)
	var log bytes.Buffer
	guard := rules.Middleware(engine, httplimit.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	assert.Equal(t, 200, get(guard(hello), "/", "User", "ann").Code)
	assert.Contains(t, log.String(), "a place in flight was not released")
}

// Without a place a request passes with FailOpen, and gets 503 else.
func TestAFailedHoldTakesNoPlace(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	engine, err := rules.New(load(t, concurrent("")),
		rules.Config{Strategies: func(m rules.Method) (weir.Strategy, error) {
			if m.Algorithm == rules.FixedWindow {
				return weirtest.FailAll(assert.AnError), nil
			}
			return rules.StrategiesOf(limiter)(m)
		}})
	require.NoError(t, err)
	for code, open := range map[int]bool{503: false, 200: true} {
		h := rules.Middleware(engine, httplimit.Config{
			FailOpen: open, Logger: slog.New(slog.DiscardHandler)})(hello)
		assert.Equal(t, code, get(h, "/", "User", "ann", "Rate", "a").Code)
		assert.Equal(t, 200, get(h, "/", "User", "ann").Code, "the place is free")
	}
}

func TestRulesInFlightAreReadAndWritten(t *testing.T) {
	for more, want := range map[string]string{
		"":                "1 in flight, lease 1m0s",
		", lease: 90s":    "1 in flight, lease 1m30s",
		", lease: 1ms":    "1 in flight, lease 1ms",
		", lease: 8760h":  "1 in flight, lease 8760h0m0s",
		", lease: 1h1.5s": "1 in flight, lease 1h0m1.5s",
	} {
		set := load(t, concurrent(more))
		assert.Empty(t, set.Warnings())
		rule := set.Match("d", entries(t, "user=a"))
		assert.Equal(t, want, rule.Limit.String())
		assert.Contains(t, rule.String(), want)
		assert.Equal(t, rule.Limit, rewritten(t, set).Match("d", entries(t, "user=a")).Limit)
	}
	short := load(t, strings.ReplaceAll(concurrent(", lease: 5s"), "in_flight", "In_Flight"))
	changes := load(t, concurrent("")).Diff(short)
	require.Len(t, changes, 1)
	assert.Equal(t,
		"d: user: 1 in flight, lease 1m0s -> 1 in flight, lease 5s; counters start at zero",
		changes[0].String())
	changes = short.Diff(load(t, strings.Replace(concurrent(", lease: 5s"), "unit: 1", "unit: 4", 1)))
	require.Len(t, changes, 1)
	assert.Contains(t, changes[0].Effect, "counters are kept")

	_, found := (&rules.Loader{Envoy: true}).Check(files("r.yaml", concurrent("")))
	require.NotEmpty(t, found)
	assert.Equal(t, "r.yaml:4:36: warning: not portable: Envoy's service refuses the unit in_flight",
		found[0].Error())
}

func TestWrongRulesInFlight(t *testing.T) {
	const limit = "unit: in_flight, requests_per_unit: 4"
	for _, row := range []struct{ limit, own, want string }{
		{limit + ", lease: 60", "{}", "lease is 60; want a duration such as 60s"},
		{limit + ", lease: ''", "{}", `lease is ""; want a duration such as 60s`},
		{limit + ", lease: [1s]", "{}", "want a string"},
		{limit + ", lease: 0s", "{}", "lease is 0s; want whole milliseconds, from 1ms to 365 days"},
		{limit + ", lease: -1s", "{}", "from 1ms to 365 days"},
		{limit + ", lease: 999us", "{}", "from 1ms to 365 days"},
		{limit + ", lease: 1.5ms", "{}", "from 1ms to 365 days"},
		{limit + ", lease: 8761h", "{}", "from 1ms to 365 days"},
		{limit + ", unit_multiplier: 2", "{}", "unit_multiplier does not apply to the unit in_flight"},
		{"unit: minute, requests_per_unit: 4, lease: 1s", "{}", "lease applies to the unit in_flight only"},
		{"unlimited: true, lease: 1s", "{}", "lease applies to the unit in_flight only"},
		{"unlimited: true, unit: in_flight", "{}", "should not specify rate limit unit when unlimited"},
		{"unit: inflight, requests_per_unit: 4", "{}", "did you mean 'in_flight'?"},
		{limit, "{algorithm: sliding_log}", "the unit in_flight has no algorithm"},
		{"unit: day, requests_per_unit: 4", "{algorithm: in_flight}", "no algorithm is named so"},
		{limit, "{burst: 5}", "burst applies to token_bucket only; the algorithm is in_flight"},
		{limit, "{costs: afterwards}", "costs do not apply to the unit in_flight"},
		{limit, "{calendar: {zone: UTC}}", "the unit is in_flight"},
	} {
		text := "domain: d\ndescriptors: [{key: k, rate_limit: {" + row.limit + "}, metadata: {weir: " +
			row.own + "}}]\n"
		_, err := rules.Load(files("r.yaml", text))
		assert.ErrorContains(t, err, row.want, text)
	}
}

// panicking returns s, which panics instead of a decision.
func panicking(s weir.Strategy) weir.Strategy {
	return ops.Through(s, func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpTake {
			panic("broken")
		}
		next()
	})
}

// What a rule holds of a request is given back where the strategy of another rule panics.
func TestAPanicLeavesNoPlaceHeld(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	engine, err := rules.New(load(t, `
domain: d
descriptors:
  - {key: remote_address, rate_limit: {unit: in_flight, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 5}, metadata: {weir: {algorithm: sliding_log}}}
---
domain: d
rate_limits: [{actions: [{remote_address: {}}]}, {actions: [{path: {}}]}]
`), rules.Config{Strategies: func(m rules.Method) (weir.Strategy, error) {
		switch m.Algorithm {
		case rules.SlidingLog:
			return panicking(l.SlidingLog()), nil
		case rules.InFlight:
			return l.InFlight(), nil
		}
		return l.FixedWindow(), nil
	}})
	require.NoError(t, err)
	h := rules.Middleware(engine, httplimit.Config{})(hello)
	assert.Panics(t, func() { get(h, "/") })
	assert.Zero(t, l.Stats().Held)
}
