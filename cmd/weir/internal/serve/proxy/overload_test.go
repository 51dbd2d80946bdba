package proxy

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/overload"
)

// overloads returns the Config of a proxy without limits that admits what fits.
func overloads(t testing.TB, classes ...string) Config {
	cfg := config(t)
	cfg.Overload.On = true
	for _, text := range classes {
		c, err := ParseClass(text)
		require.NoError(t, err)
		cfg.Classes = append(cfg.Classes, c)
	}
	return cfg
}

// hold has callers hold so many of a hundred places.
func (s served) hold(t testing.TB, percent int, caller string) (release func()) {
	var places []*overload.Place
	for s.full.Stats().InFlight*100 < percent*s.full.Stats().Limit {
		p, err := s.full.Enter(t.Context(), caller, overload.Critical)
		require.NoError(t, err)
		places = append(places, p)
	}
	return func() {
		for _, p := range places {
			p.Drop()
		}
	}
}

func TestAFullUpstreamIsSeen(t *testing.T) {
	cfg := overloads(t)
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	log := textLog(&cfg.Access)
	s := serve(t, cfg)
	assert.Equal(t, 204, status(t, "GET", s.front.URL))
	x := explained(t, s, url.Values{"key": {"127.0.0.1"}})
	assert.Equal(t, "passes", x.Says)
	assert.Regexp(t, `^the upstream: 0 of \d+ for normal; 127.0.0.1 holds 0$`, x.Notes[0])

	release := s.hold(t, 100, "")
	resp, text := send(t, "GET", s.front.URL, nil)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Contains(t, text, "temporary-reduced-capacity")
	assert.Contains(t, log.String(), "outcome=busy source=overload class=normal reason=full")
	x = explained(t, s, url.Values{"key": {"127.0.0.1"}})
	assert.Regexp(t, `^is refused: full: \d+ of \d+ for normal; 127.0.0.1 holds 0 of at most 1$`, x.Says)
	assert.Equal(t, "overload: full", x.Last[0].Limit)
	assert.InDelta(t, .5, x.Sent.Denied, 0, "of two requests")
	release()
	assert.Equal(t, 204, status(t, "GET", s.front.URL))

	s.hold(t, 50, "127.0.0.1")
	resp, text = send(t, "GET", s.front.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Regexp(t, `^"share";q=\d+;qu="concurrent-requests"$`, resp.Header.Get("RateLimit-Policy"))
	assert.Contains(t, text, "quota-exceeded")
	assert.Equal(t, "overload: share", explained(t, s, url.Values{"key": {"127.0.0.1"}}).Last[0].Limit)

	o := s.figures().Overload
	assert.Equal(t, map[string]uint64{"full": 1, "share": 1}, o.Refused["normal"])
	assert.Equal(t, "learning", o.State)
	assert.True(t, o.Learnt)
	assert.Equal(t, []uint64{2, 2}, []uint64{s.figures().Requests["busy"], s.figures().Requests["admitted"]})
	metrics := s.metrics()
	assert.Contains(t, metrics, `weir_overload_refused_total{class="normal",reason="share"} 1`+"\n")
	assert.Regexp(t, `weir_overload_limit \d+\n`, metrics)
	without := serve(t, config(t, "1/1d"))
	assert.Nil(t, without.figures().Overload)
	assert.NotContains(t, without.metrics(), "weir_overload")
}

// The class of a request is that of its path, in any spelling, and the least of several.
func TestClassesOfPaths(t *testing.T) {
	cfg := overloads(t, "POST /login=critical", "/export/=sheddable", "/export/status=normal",
		"/a/{x}/b = critical")
	s := serve(t, cfg)
	s.hold(t, 80, "")
	classes, err := newClasses(cfg.Classes)
	require.NoError(t, err)
	for _, row := range []struct {
		method, path string
		want         overload.Class
		ok           bool
	}{
		{"POST", "/login", overload.Critical, true}, {"GET", "/login", overload.Normal, false},
		{"POST", "/Login/", overload.Normal, true}, {"GET", "/export/all", overload.Sheddable, true},
		{"GET", "//EXPORT//all", overload.Sheddable, true}, {"GET", "/export/status", overload.Normal, true},
		{"GET", "/a/1/b", overload.Critical, true}, {"GET", "/", overload.Normal, false},
		{"POST", "/export/..;/login", overload.Sheddable, true},
		{"POST", "/login/..;/export/all", overload.Sheddable, true},
	} {
		r, err := http.NewRequest(row.method, "http://h"+row.path, http.NoBody)
		require.NoError(t, err)
		class, ok := classes.find(r, r.URL.EscapedPath())
		assert.Equal(t, row.ok, ok, row)
		assert.Equal(t, row.want, class, row)
		want := 200
		if row.want == overload.Sheddable {
			want = 503
		}
		assert.Equal(t, want, status(t, row.method, s.front.URL+row.path), row)
	}
}

func TestClassesOfRules(t *testing.T) {
	cfg, _ := rulesConfig(t, `
domain: web
descriptors:
  - {key: plan, value: gold, metadata: {weir: {class: critical}}, rate_limit: {unlimited: true}}
  - {key: plan, value: free, metadata: {weir: {class: sheddable}}, rate_limit: {unlimited: true}}
rate_limits: [{actions: [{request_headers: {header_name: plan, descriptor_key: plan}}]}]
`)
	own := overloads(t, "/report=sheddable")
	cfg.Overload, cfg.Classes = own.Overload, own.Classes
	s := serve(t, cfg)
	s.hold(t, 80, "")
	for _, row := range []struct {
		path, plan string
		want       int
	}{{"/", "free", 503}, {"/", "gold", 200}, {"/", "none", 200}, {"/report", "gold", 503}} {
		assert.Equal(t, row.want, status(t, "GET", s.front.URL+row.path, "Plan", row.plan), row)
	}
	s.hold(t, 95, "")
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "Plan", "gold"))
	assert.Equal(t, 503, status(t, "GET", s.front.URL, "Plan", "none"))
}

// What a new configuration leaves as it was goes on: the limit that was learnt, and what is held.
func TestReconfigureKeepsTheGuard(t *testing.T) {
	cfg := overloads(t)
	s := serve(t, cfg)
	s.front.Config.Handler = s.Handler()
	s.hold(t, 80, "")
	get := func(path string) int { return status(t, "GET", s.front.URL+path) }
	assert.Equal(t, 200, get("/export"))
	before := s.full

	next := overloads(t, "/export=sheddable")
	require.NoError(t, s.Reconfigure(next))
	assert.Same(t, before, s.current.Load().full)
	assert.Equal(t, []int{503, 200}, []int{get("/export"), get("/")})

	next.Overload.Goal = time.Second
	require.NoError(t, s.Reconfigure(next))
	assert.NotSame(t, before, s.current.Load().full)
	assert.Equal(t, 200, get("/export"))
	assert.False(t, s.current.Load().figures().Overload.Learnt)

	assert.Error(t, s.Reconfigure(config(t)), "neither a limit nor an overload")
	require.NoError(t, s.Reconfigure(config(t, "100/1d")))
	assert.Nil(t, s.current.Load().full)
	assert.Equal(t, 200, get("/export"))
}

func TestStreamsHoldNoPlace(t *testing.T) {
	cfg := overloads(t)
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		streams(w, r)
	})
	s := serve(t, cfg)
	code, end := openStream(t, s.front.URL, "192.0.2.1")
	defer end()
	assert.Equal(t, 200, code)
	assert.Zero(t, s.full.Stats().InFlight)
	assert.EqualValues(t, 1, s.open.Load())
}

func TestFlagsOfOverload(t *testing.T) {
	for text, want := range map[string]Overload{
		"learn": {On: true}, "true": {On: true}, "": {}, "false": {}, "250ms": {On: true, Goal: 250 * time.Millisecond},
	} {
		var o, again Overload
		require.NoError(t, o.Set(text))
		assert.Equal(t, want, o, text)
		require.NoError(t, again.Set(o.String()))
		assert.Equal(t, want, again, text)
	}
	for _, text := range []string{"0s", "-1s", "soon", "250"} {
		var o Overload
		assert.EqualError(t, o.Set(text), "want how long a request may take, such as 250ms, or no value, not "+
			`"`+text+`"`)
	}
	for text, want := range map[string]string{
		"/a":         `class "/a": want PATTERN=CLASS, such as "POST /login=critical"`,
		"=critical":  `class "=critical": want PATTERN=CLASS, such as "POST /login=critical"`,
		"/a=urgent":  `class "/a=urgent": want sheddable, normal or critical, not "urgent"`,
		"/a=b=high ": `class "/a=b=high ": want sheddable, normal or critical, not "high"`,
	} {
		_, err := ParseClass(text)
		assert.EqualError(t, err, want)
	}
	for want, cfg := range map[string]Config{
		`class of "nowhere": want a path that begins with a slash`:        overloads(t, "/a=normal", "nowhere=critical"),
		`class of "/a" is given twice: leave one out`:                     overloads(t, "/a=normal", "/a=critical"),
		"--class has no effect without --overload: give that too":         {Listen: "x:1", Limits: config(t, "1/1d").Limits, Classes: overloads(t, "/a=normal").Classes},
		"which limit? Give --limit, such as --limit 100/1m, --rules FILE": {},
	} {
		_, err := New(cfg)
		assert.ErrorContains(t, err, want)
	}
}

// The line that a proxy writes when it serves says that it has a guard.
func TestTheStartSaysOverload(t *testing.T) {
	cfg := overloads(t)
	require.NoError(t, cfg.Overload.Set("90ms"))
	log := textLog(&cfg.Log)
	s := serve(t, cfg)
	(&serving{p: s.Proxy, front: &server{conns: newConns(s.front.Listener, connBounds{})},
		back: &server{}}).announce()
	assert.Contains(t, log.String(), "overload=90ms")
}
