package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// At most the bound of requests is in the handler at any time. Without the bound, the negative
// control, there are more.
func TestRequestsInFlightNeverExceedTheBound(t *testing.T) {
	const all, each, clients = 6, 2, 8
	for _, bounded := range []bool{true, false} {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1e9, Duration: time.Hour}
		if bounded {
			cfg.MaxInFlight = all
			cfg.Concurrency = httplimit.Policy{Strategy: newLimiter(t, nil).InFlight(), Limit: each}
		}
		var inside, peak atomic.Int64
		var client [clients]atomic.Int64
		var clientPeak atomic.Int64
		gate := make(chan struct{})
		guard := httplimit.New(&weirtest.Fake{}, cfg)(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				i := r.Header.Get("X-Client")[0] - '0'
				raise(&peak, inside.Add(1))
				raise(&clientPeak, client[i].Add(1))
				<-gate
				client[i].Add(-1)
				inside.Add(-1)
			}))
		var wg sync.WaitGroup
		var served atomic.Int64
		for n := range 20 * clients {
			i := string(rune('0' + n%clients))
			wg.Go(func() {
				w := httptest.NewRecorder()
				guard.ServeHTTP(w, from("203.0.113."+i+":1", "X-Client: "+i))
				if w.Code == http.StatusOK {
					served.Add(1)
				}
			})
		}
		if bounded {
			assert.Eventually(t, func() bool { return inside.Load() == all }, 10*time.Second,
				time.Millisecond)
		} else {
			assert.Eventually(t, func() bool { return inside.Load() == 20*clients }, 10*time.Second,
				time.Millisecond)
		}
		close(gate)
		wg.Wait()
		assert.Equal(t, bounded, peak.Load() <= all, peak.Load())
		assert.Equal(t, bounded, clientPeak.Load() <= each, clientPeak.Load())
		assert.GreaterOrEqual(t, served.Load(), int64(all))
	}
}

func raise(peak *atomic.Int64, n int64) {
	for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
	}
}

// A place of MaxInFlight is released however the request ends.
func TestAPlaceOfMaxInFlightIsAlwaysReleased(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"returns":         func(http.ResponseWriter, *http.Request) {},
		"panics":          func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"exits":           nil,
		"is denied":       nil,
		"extractor fails": nil,
		"cost panics":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := hundred()
			cfg.MaxInFlight = 1
			cfg.Concurrency = httplimit.Policy{Strategy: newLimiter(t, nil).InFlight(), Limit: 1}
			fake := &weirtest.Fake{}
			switch name {
			case "exits":
				handle = func(http.ResponseWriter, *http.Request) { t.SkipNow() } // runtime.Goexit
			case "is denied":
				fake = weirtest.DenyAll()
			case "extractor fails":
				cfg.Extractor = failing(assert.AnError)
			case "cost panics":
				cfg.CostFunc = func(*http.Request) uint64 { panic(http.ErrAbortHandler) }
			}
			if handle == nil {
				handle = func(http.ResponseWriter, *http.Request) {}
			}
			ok := true
			guard := httplimit.New(fake, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "exits" && r.Header.Get("X-Stay") == "" {
					handle(w, r)
				} else if name != "exits" {
					handle(w, r)
				}
			}))
			var last *httptest.ResponseRecorder
			for range 3 {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					last = httptest.NewRecorder()
					guard.ServeHTTP(last, from("203.0.113.7:1"))
				}()
				<-done
				ok = ok && !strings.Contains(last.Body.String(), "are in flight") &&
					!strings.Contains(last.Body.String(), `"in flight"`)
			}
			assert.True(t, ok, "the second finds the place free")
		})
	}
}

func TestOneTooManyInFlight(t *testing.T) {
	stats := &httplimit.Stats{}
	fake := &weirtest.Fake{}
	cfg := hundred()
	cfg.MaxInFlight, cfg.Stats = 1, stats
	var guard http.Handler
	inner := httptest.NewRecorder()
	guard = httplimit.New(fake, cfg)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		guard.ServeHTTP(inner, r)
	}))
	w := httptest.NewRecorder()
	guard.ServeHTTP(w, from("203.0.113.7:1"))
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, http.StatusServiceUnavailable, inner.Code)
	assert.Equal(t, "1", inner.Header().Get("Retry-After"))
	assert.Equal(t, "Too many requests are in flight.", problemOf(t, inner)["detail"])
	assert.EqualValues(t, 1, stats.Count(httplimit.Busy))
	assert.Equal(t, []string{"Run"}, methods(fake), "a refused request takes nothing from a limit")
}

// A middleware may bound requests in flight alone.
func TestInFlightAlone(t *testing.T) {
	w, ran := serve(weirtest.DenyAll(),
		httplimit.Config{Extractor: httplimit.RemoteAddr(), MaxInFlight: 1}, from("203.0.113.7:1"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, 1, ran)
	assert.Equal(t, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, w.Result().Header)
}
