package pages

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

func TestStreamsAtOneTime(t *testing.T) {
	limiter := newLimiter()
	defer limiter.Close()
	writing, end := make(chan struct{}), make(chan struct{})
	generate := func(w http.ResponseWriter) {
		writing <- struct{}{}
		<-end
		w.WriteHeader(http.StatusOK)
	}

	streams := limiter.InFlight().Limit(2)
	answer := func(w http.ResponseWriter, r *http.Request) {
		held, err := streams.Hold(r.Context(), r.Header.Get("User"))
		if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
			http.Error(w, "two answers are under way", http.StatusTooManyRequests)
			return
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		defer held.Release(r.Context()) // also if generate panics
		generate(w)
	}

	checkStreams(t, http.HandlerFunc(answer), writing, end)
}

const streamRules = `
domain: api
descriptors:
  - key: user
    rate_limit: {unit: in_flight, requests_per_unit: 2, lease: 60s}
---
domain: api
rate_limits:
  - actions: [{request_headers: {header_name: User, descriptor_key: user}}]
`

func TestStreamsAtOneTimeByRules(t *testing.T) {
	set, err := rules.Load(fstest.MapFS{"limits.yaml": {Data: []byte(streamRules)}})
	require.NoError(t, err)
	engine, err := rules.New(set, rules.Config{})
	require.NoError(t, err)
	defer engine.Close()
	writing, end := make(chan struct{}), make(chan struct{})
	generate := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writing <- struct{}{}
		<-end
		w.WriteHeader(http.StatusOK)
	})
	checkStreams(t, rules.Middleware(engine, httplimit.Config{})(generate), writing, end)
}

// checkStreams checks that a user may have two answers at one time. The handler sends to writing
// when it begins one, and ends it with what it receives.
func checkStreams(t *testing.T, handler http.Handler, writing, end chan struct{}) {
	t.Helper()
	ask := func(user string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", user)
		handler.ServeHTTP(w, r)
		return w.Code
	}
	statuses := make(chan int)
	start := func(user string) {
		go func() { statuses <- ask(user) }()
		<-writing
	}
	start("ann")
	start("ann")
	assert.Equal(t, http.StatusTooManyRequests, ask("ann"))
	start("bob") // has his own
	for range 3 {
		end <- struct{}{}
		assert.Equal(t, http.StatusOK, <-statuses)
	}
	start("ann")
	end <- struct{}{}
	assert.Equal(t, http.StatusOK, <-statuses)
}
