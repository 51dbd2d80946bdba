package proxy

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATrialDeniesNobody compares a proxy that tries a limit with one that enforces it: the trial
// denies what the limit would, and nobody notices.
func TestATrialDeniesNobody(t *testing.T) {
	for _, route := range []string{"", "/login limit=20/1d", "/login cost=2"} {
		t.Run(route, func(t *testing.T) {
			trying, enforcing := config(t, "9/1d"), config(t, "3/1d")
			trying.Try = enforcing.Limits
			for _, cfg := range []*Config{&trying, &enforcing} {
				cfg.Trust = loopback
				if route != "" {
					*cfg = withRoutes(t, *cfg, route)
				}
			}
			s, e := serve(t, trying), serve(t, enforcing)
			denied := 0
			for i := range 30 {
				from := []string{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%5)}
				if status(t, "GET", e.front.URL+"/a", from...) == 429 {
					denied++
				}
				answer, _ := send(t, "GET", s.front.URL+"/a", nil, from...)
				assert.Equal(t, 200, answer.StatusCode)
				assert.Len(t, answer.Header["Ratelimit"], 1)
				assert.NotContains(t, answer.Header.Get("RateLimit-Policy"), "try")
			}
			shown := s.figures().Try
			require.NotNil(t, shown)
			assert.EqualValues(t, denied, shown.Denied)
			assert.EqualValues(t, 15, denied)
			assert.EqualValues(t, 30, shown.Requests)
			assert.Equal(t, 5, shown.Callers)
			assert.Zero(t, s.figures().Requests["denied"])
			assert.EqualValues(t, 30, s.figures().Requests["admitted"])
			assert.EqualValues(t, 3, shown.Worst[0].N)
			assert.Equal(t, []limitTitle{{"3/1d", "3/1d", "sliding window", 3}}, shown.Limits)
		})
	}
	assert.Nil(t, serve(t, config(t, "1/1d")).figures().Try)
}

// TestATrialLeavesTheListOut tries a limit on callers that are denied anyway.
func TestATrialLeavesTheListOut(t *testing.T) {
	cfg := config(t, "9/1d")
	cfg.Try = config(t, "1/1d").Limits
	s := serve(t, cfg)
	e, err := change{What: "127.0.0.1"}.entry(s.started)
	require.NoError(t, err)
	require.NoError(t, s.denied.Add(e))
	for range 3 {
		assert.Equal(t, 403, status(t, "GET", s.front.URL))
	}
	assert.Zero(t, s.figures().Try.Requests)
}

// TestFiguresGoOnAfterAReload changes an answer, and then a limit: what is as before has its sums
// of before.
func TestFiguresGoOnAfterAReload(t *testing.T) {
	cfg := config(t, "a=3/1d", "b=9/1d")
	cfg.MaxInFlightPerClient = 5
	try := config(t, "1/1d")
	cfg.Try = try.Limits
	p := serve(t, cfg).Proxy
	ask := func(n int) {
		for range n {
			p.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
	}
	sums := func() (all []uint64) {
		f := p.current.Load().figures()
		for _, l := range f.Limits {
			all = append(all, l.Requests, l.Denied)
		}
		return append(all, f.Try.Requests, f.Try.Denied)
	}
	ask(4)
	assert.Equal(t, []uint64{4, 0, 4, 1, 4, 0, 4, 3}, sums(), "in flight, a, b, and the trial")
	cfg.Guard.DeniedStatus = 420
	require.NoError(t, p.Reconfigure(cfg))
	ask(1)
	assert.Equal(t, []uint64{5, 0, 5, 2, 5, 0, 5, 4}, sums())
	other := config(t, "a=4/1d", "b=9/1d")
	cfg.Limits, cfg.Try = other.Limits, other.Limits
	require.NoError(t, p.Reconfigure(cfg))
	ask(1)
	assert.Equal(t, []uint64{6, 0, 6, 0, 6, 0, 1, 0}, sums(), "another limit, and another trial")
}
