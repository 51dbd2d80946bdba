package httplimit_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/overload"
)

// What no policy would release is a mistake, wherever it is given and whatever is around it.
func TestWorkInFlightIsNoPolicy(t *testing.T) {
	rate := newLimiter(t, nil).SlidingWindow().Limit(100, time.Minute)
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	for place, build := range map[string]func(s weir.Strategy, cfg httplimit.Config){
		"New":      func(s weir.Strategy, cfg httplimit.Config) { httplimit.New(s, cfg) },
		"NewGuard": func(s weir.Strategy, cfg httplimit.Config) { httplimit.NewGuard(s, cfg) },
		"Policy.Strategy": func(s weir.Strategy, cfg httplimit.Config) {
			cfg.Policies = []httplimit.Policy{{Name: "jobs", Limit: cfg.Limit, Duration: cfg.Duration,
				Strategy: s}}
			cfg.Name, cfg.Limit, cfg.Duration = "", 0, 0
			httplimit.New(rate, cfg)
		},
		"Penalty": func(s weir.Strategy, cfg httplimit.Config) {
			cfg.Name, cfg.Limit, cfg.Duration = "", 0, 0
			cfg.DenyList = list
			cfg.Penalty = httplimit.Penalty{Strategy: s, Denials: 3, Within: time.Minute, For: time.Hour}
			httplimit.New(rate, cfg)
		},
	} {
		t.Run(place, func(t *testing.T) {
			doortest.RefusesInFlight(t, "Config.Concurrency", func(s weir.Strategy, cfg httplimit.Config) error {
				build(s, cfg)
				return nil
			})
		})
	}
}

// A LimitFunc chooses at the call: a limit in flight decides nothing there, and no FailOpen opens
// it.
func TestWorkInFlightIsNoPlan(t *testing.T) {
	l := newLimiter(t, at(noon))
	for name, s := range doortest.InFlight(t, l, l.InFlight()) {
		m, ok := s.(*weir.Limit)
		if !ok {
			continue
		}
		for _, open := range []bool{false, true} {
			cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Name: "plan", FailOpen: open,
				LimitFunc: func(*http.Request) *weir.Limit { return m }}
			var d httplimit.Decision
			cfg.OnDecision = func(_ *http.Request, of httplimit.Decision) { d = of }
			w, _ := serve(nil, cfg, from("203.0.113.7:1"))
			assert.Equal(t, http.StatusServiceUnavailable, w.Code, name)
			require.ErrorIs(t, d.Err, errors.ErrUnsupported, name)
			assert.ErrorContains(t, d.Err, "Config.Concurrency", name)
		}
	}
	assert.Zero(t, counted(t, l.InFlight().Limit(20), "203.0.113.7"))
}

// And one that holds nothing is no plan of Concurrency.
func TestARateIsNoPlanOfConcurrency(t *testing.T) {
	l := newLimiter(t, at(noon))
	rate := l.SlidingWindow().Limit(5, time.Minute)
	cfg := hundred()
	cfg.FailOpen, cfg.Concurrency = true, httplimit.Policy{Strategy: l.InFlight().Limit(1),
		LimitFunc: func(*http.Request) *weir.Limit { return rate }}
	var d httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, of httplimit.Decision) { d = of }
	w, _ := serve(l.FixedWindow(), cfg, from("203.0.113.7:1"))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.ErrorContains(t, d.Err, "Concurrency needs a Strategy that holds")
}

// A bound on requests in flight is a limit, and needs no other one.
func TestBoundsInFlightNeedNoStrategy(t *testing.T) {
	l := newLimiter(t, at(noon))
	for name, c := range map[string]struct {
		cfg    httplimit.Config
		status int
	}{
		"Concurrency": {httplimit.Config{
			Concurrency: httplimit.Policy{Strategy: l.InFlight().Limit(1)}}, 429},
		"Concurrency, of a Strategy": {httplimit.Config{
			Concurrency: httplimit.Policy{Name: "x", Strategy: l.InFlight(), Limit: 1}}, 429},
		"MaxInFlight": {httplimit.Config{MaxInFlight: 1}, 503},
		"Overload": {httplimit.Config{
			Overload: overloadOf(t, overload.Config{Most: 1, Now: at(noon)})}, 503},
	} {
		c.cfg.Extractor = httplimit.RemoteAddr()
		outer, inner := nested(nil, c.cfg, from("203.0.113.7:1"), from("203.0.113.7:1"))
		require.Equal(t, http.StatusOK, outer.Code, name)
		assert.Equal(t, c.status, inner[0].Code, name)
	}
	rate := l.SlidingWindow().Limit(1, time.Minute)
	for name, cfg := range map[string]httplimit.Config{
		"Policies":  {Policies: []httplimit.Policy{{Strategy: rate}}},
		"LimitFunc": {Name: "x", LimitFunc: func(*http.Request) *weir.Limit { return rate }},
	} {
		cfg.Extractor = httplimit.RemoteAddr()
		assert.NotPanics(t, func() { httplimit.NewGuard(nil, cfg) }, name)
	}
	for want, cfg := range map[string]httplimit.Config{
		"httplimit: no limit: give New a weir.Limit, or set Limit and Duration, LimitFunc, " +
			"Policies, Concurrency, Overload, MaxInFlight, or Decider": {},
		`httplimit: policy "5/1m" has no Strategy`: {Limit: 5, Duration: time.Minute},
		`httplimit: policy "x" has no Strategy`:    {Policies: []httplimit.Policy{{Name: "x"}}},
		`httplimit: policy "in flight" has no Strategy`: {
			Concurrency: httplimit.Policy{Limit: 1}},
	} {
		cfg.Extractor = httplimit.RemoteAddr()
		assert.PanicsWithValue(t, want, func() { httplimit.NewGuard(nil, cfg) })
	}
}

// A limit that gives back may stay in a guard, whatever is around it.
func TestRatesAreNotTakenForWorkInFlight(t *testing.T) {
	l := newLimiter(t, nil)
	rate := l.SlidingWindow().Limit(5, time.Minute)
	for _, s := range []weir.Strategy{rate, limits.All(rate)} {
		of := limits.NewAttempt(s)
		assert.False(t, of.InFlight())
	}
}
