package httplimit_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// nested sends r through the middleware, and inner requests while its handler runs.
func nested(s weir.Strategy, cfg httplimit.Config, r *http.Request, inner ...*http.Request,
) (outer *httptest.ResponseRecorder, results []*httptest.ResponseRecorder) {
	var guard http.Handler
	guard = httplimit.New(s, cfg)(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		if got != r {
			return
		}
		for _, r := range inner {
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, r)
			results = append(results, w)
		}
	}))
	outer = httptest.NewRecorder()
	guard.ServeHTTP(outer, r)
	return outer, results
}

// places returns how many places the caller holds.
func places(t *testing.T, s weir.Strategy, caller string) uint64 {
	t.Helper()
	res, err := ops.Peek(t.Context(), s, &weir.Request{
		Key: httplimit.Policy{Name: "in flight"}.Key(caller), Limit: 1e6, Duration: time.Minute,
	})
	require.NoError(t, err)
	return res.TotalRequests - 1
}

func TestConcurrencyAnswersAsOtherPolicies(t *testing.T) {
	for _, row := range []struct {
		style           httplimit.HeaderStyle
		admitted, after http.Header
	}{
		{httplimit.HeadersDraft,
			http.Header{
				"Ratelimit-Policy": {`"in flight";q=1;qu="concurrent-requests", "100/1m";q=100;w=60`},
				"Ratelimit":        {`"in flight";r=0, "100/1m";r=99;t=60`},
			},
			http.Header{
				"Ratelimit-Policy": {`"in flight";q=1;qu="concurrent-requests", "100/1m";q=100;w=60`},
				"Ratelimit":        {`"in flight";r=0;t=1, "100/1m";r=99`}, "Retry-After": {"1"},
			}},
		{httplimit.HeadersLegacy,
			http.Header{"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {"0"}},
			http.Header{"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {"0"},
				"X-Ratelimit-Retry-After": {"1"}, "Retry-After": {"1"}}},
		{httplimit.HeadersNone, http.Header{}, http.Header{"Retry-After": {"1"}}},
	} {
		limiter := newLimiter(t, at(noon))
		cfg := hundred()
		cfg.Headers, cfg.Stats = row.style, &httplimit.Stats{}
		cfg.Concurrency = httplimit.Policy{Strategy: limiter.InFlight(), Limit: 1}
		var decisions []httplimit.Decision
		cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { decisions = append(decisions, d) }
		outer, inner := nested(limiter.FixedWindow(), cfg, from("203.0.113.7:1"), from("203.0.113.7:2"),
			from("203.0.113.8:1"))
		assert.Equal(t, row.admitted, outer.Header())
		assert.Equal(t, http.StatusTooManyRequests, inner[0].Code)
		assert.Equal(t, map[string]any{
			"type":  "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Quota Exceeded", "status": 429.0, "detail": "The limit of this policy is used up.",
			"violated-policies": []any{"in flight"},
		}, problemOf(t, inner[0]))
		delete(inner[0].Header(), "Content-Type")
		delete(inner[0].Header(), "Cache-Control")
		assert.Equal(t, row.after, inner[0].Header())
		assert.Equal(t, http.StatusOK, inner[1].Code, "another client")

		require.Len(t, decisions, 3)
		assert.Equal(t, httplimit.Decision{
			Kind: httplimit.Denied, Key: "203.0.113.7", Policy: "in flight", Strategy: "in flight",
			Source: "local", Limit: 1, Duration: time.Minute, Cost: 1, Status: 429,
			Result:     weir.Result{State: weir.Deny, TotalRequests: 1},
			RetryAfter: time.Second,
		}, decisions[1])
		assert.EqualValues(t, 1, cfg.Stats.Count(httplimit.Denied))
		assert.EqualValues(t, 2, cfg.Stats.Count(httplimit.Admitted))
		assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"))
	}
}

// A request that one limit denies takes nothing of the others, wherever they are.
func TestConcurrencyAndRatesAreAllOrNothing(t *testing.T) {
	for name, rate := range map[string]func(l *weir.Limiter) weir.Strategy{
		"in this process": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"elsewhere":       func(l *weir.Limiter) weir.Strategy { return ops.Afar(l.SlidingWindow()) },
		"irrevocable":     func(l *weir.Limiter) weir.Strategy { return irrevocable{l.SlidingWindow()} },
	} {
		for far, holder := range map[string]func(l *weir.Limiter) weir.Strategy{
			"in this process": func(l *weir.Limiter) weir.Strategy { return l.InFlight() },
			"elsewhere":       func(l *weir.Limiter) weir.Strategy { return ops.Afar(l.InFlight()) },
		} {
			t.Run(name+", places "+far, func(t *testing.T) {
				limiter := newLimiter(t, at(noon))
				cfg := hundred()
				cfg.Name, cfg.Limit = "rate", 3
				cfg.Concurrency = httplimit.Policy{Strategy: holder(limiter), Limit: 2}
				counted := func() uint64 {
					res, err := ops.Peek(t.Context(), limiter.SlidingWindow(), &weir.Request{Key: httplimit.Policy{Name: "rate"}.Key("203.0.113.7"), Limit: 10,
						Duration: time.Minute})
					require.NoError(t, err)
					return res.TotalRequests - 1
				}
				r := func() *http.Request { return from("203.0.113.7:1") }
				// One in flight: the second passes, and the third within it is one too many at a time.
				guard := httplimit.New(rate(limiter), cfg)
				var depth int
				var codes []int
				var h http.Handler
				h = guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					if depth++; depth > 2 {
						return
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r())
					codes = append(codes, w.Code)
				}))
				h.ServeHTTP(httptest.NewRecorder(), r())
				assert.Equal(t, []int{429, 200}, codes)
				assert.EqualValues(t, 2, counted(), "what Concurrency denies is not counted")
				assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"))

				depth = 2
				for _, want := range []int{200, 429, 429} {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r())
					assert.Equal(t, want, w.Code)
					assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"),
						"what a rate denies keeps no place")
				}
				assert.EqualValues(t, 3, counted())
			})
		}
	}
}

// irrevocable is a Strategy that cannot give back.
type irrevocable struct{ s weir.Strategy }

func (i irrevocable) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return i.s.Run(ctx, r)
}

// A place is one, whatever a request costs, and no refund of CountIf gives it back.
func TestAPlaceIsOneAndHeldUntilTheEnd(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := hundred()
	cfg.CostFunc = func(*http.Request) uint64 { return 40 }
	cfg.CountIf = func(int) bool { return false }
	cfg.Concurrency = httplimit.Policy{Strategy: limiter.InFlight(), Limit: 2}
	outer, inner := nested(limiter.FixedWindow(), cfg, from("203.0.113.7:1"), from("203.0.113.7:2"))
	assert.Equal(t, http.StatusOK, outer.Code)
	assert.Equal(t, http.StatusOK, inner[0].Code)
}

// The key of Concurrency may be another than that of the rates.
func TestConcurrencyHasAnExtractorOfItsOwn(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg, free := hundred(), limiter.InFlight().Limit(1)
	cfg.Concurrency = httplimit.Policy{
		Name: "streams", Extractor: httplimit.Headers("X-Org"),
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("X-Plan") == "free" {
				return free
			}
			return nil
		},
	}
	outer, inner := nested(limiter.FixedWindow(), cfg,
		from("203.0.113.7:1", "X-Org: a", "X-Plan: free"),
		from("203.0.113.8:1", "X-Org: a", "X-Plan: free"),
		from("203.0.113.8:1", "X-Org: b", "X-Plan: free"), from("203.0.113.8:1", "X-Org: a"),
		from("203.0.113.8:1", "X-Plan: free"))
	assert.Equal(t, http.StatusOK, outer.Code)
	var codes []int
	for _, w := range inner {
		codes = append(codes, w.Code)
	}
	assert.Equal(t, []int{429, 200, 200, 400}, codes)
}

func TestConcurrencyAlone(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Limit: 1}}
	_, inner := nested(limiter.InFlight(), cfg, from("203.0.113.7:1"), from("203.0.113.7:1"))
	assert.Equal(t, http.StatusTooManyRequests, inner[0].Code)
	assert.PanicsWithValue(t,
		"httplimit: a second middleware without a name on one in flight: give its policy "+
			`"in flight" a Name of its own, or the first one's Name to share the budget`,
		func() { httplimit.New(limiter.InFlight(), cfg) })
	assert.PanicsWithValue(t,
		"httplimit: Concurrency needs a Strategy that holds, such as limiter.InFlight(): "+
			"limits: fixed window cannot hold: unsupported operation",
		func() { httplimit.New(limiter.FixedWindow(), cfg) })
	assert.Panics(t, func() {
		httplimit.New(limiter.InFlight(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Name: "x"},
		})
	}, "without a Limit")
}

// In shadow mode a request that would be denied runs, without a place.
func TestConcurrencyInShadowMode(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := hundred()
	cfg.Shadow, cfg.Concurrency = true, httplimit.Policy{Strategy: limiter.InFlight(), Limit: 1}
	_, inner := nested(limiter.FixedWindow(), cfg, from("203.0.113.7:1"), from("203.0.113.7:1"))
	assert.Equal(t, http.StatusOK, inner[0].Code)
	assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"))
}

// A Strategy that fails holds nothing, and what another one holds is given back.
func TestFailuresHoldNoPlace(t *testing.T) {
	for _, open := range []bool{false, true} {
		limiter := newLimiter(t, at(noon))
		cfg := hundred()
		cfg.FailOpen, cfg.Concurrency = open, httplimit.Policy{Strategy: limiter.InFlight(), Limit: 1}
		failing := weirtest.FailAll(assert.AnError)
		var inside uint64
		h := httplimit.New(failing, cfg)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside = places(t, limiter.InFlight(), "203.0.113.7")
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("203.0.113.7:1"))
		if open {
			assert.Equal(t, http.StatusOK, w.Code)
			assert.EqualValues(t, 1, inside, "the limits that decide hold")
		} else {
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Zero(t, inside)
		}
		assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"))
	}
}

type panicking struct{ weir.Strategy }

func (panicking) Run(context.Context, *weir.Request) (*weir.Result, error) { panic("strategy") }

// net/http goes on after a panic, so a place that is held by nobody would be lost for good.
func TestAPanicOfAStrategyHoldsNoPlace(t *testing.T) {
	for far, holder := range map[string]func(l *weir.Limiter) weir.Strategy{
		"in this process": func(l *weir.Limiter) weir.Strategy { return l.InFlight() },
		"elsewhere":       func(l *weir.Limiter) weir.Strategy { return ops.Afar(l.InFlight()) },
	} {
		limiter := newLimiter(t, at(noon))
		cfg := hundred()
		cfg.Concurrency = httplimit.Policy{Strategy: holder(limiter), Limit: 1}
		h := httplimit.New(panicking{limiter.FixedWindow()}, cfg)(http.NotFoundHandler())
		assert.PanicsWithValue(t, "strategy", func() {
			h.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
		})
		assert.Zero(t, places(t, limiter.InFlight(), "203.0.113.7"), far)
	}
}

// server starts a server behind Concurrency, and returns its places.
func server(t *testing.T, http2 bool, handle http.HandlerFunc) (*httptest.Server, func() uint64) {
	limiter := newLimiter(t, nil)
	srv := httptest.NewUnstartedServer(httplimit.New(limiter.InFlight(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Limit: 100},
	})(handle))
	srv.Config.ErrorLog = nil
	if srv.EnableHTTP2 = http2; http2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv, func() uint64 { return places(t, limiter.InFlight(), "127.0.0.1") }
}

func eventually(t *testing.T, want uint64, held func() uint64) {
	t.Helper()
	assert.Eventually(t, func() bool { return held() == want }, 20*time.Second, time.Millisecond)
}

// A stream holds its place until its handler returns, which it does when the client hangs up.
func TestStreamsHoldTheirPlace(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			srv, held := server(t, http2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "begin\n")
				_ = http.NewResponseController(w).Flush()
				if r.URL.Path == "/panics" {
					panic(http.ErrAbortHandler)
				}
				<-r.Context().Done()
			})
			var cancels []context.CancelFunc
			for range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
				require.NoError(t, err)
				resp, err := srv.Client().Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, http2, resp.ProtoMajor == 2)
				cancels = append(cancels, cancel)
			}
			assert.EqualValues(t, 5, held())
			for i, cancel := range cancels {
				cancel()
				eventually(t, uint64(4-i), held)
			}
			resp, err := srv.Client().Get(srv.URL + "/panics")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			assert.Error(t, err)
			eventually(t, 0, held)
		})
	}
}

// A hijacked connection holds its place until both the handler has returned and it is closed. After
// a panic it holds none, as nobody may be left to close it.
func TestHijackedConnectionsHoldTheirPlace(t *testing.T) {
	for _, countIf := range []bool{false, true} {
		for _, how := range []string{"closes after it returns", "closes before it returns", "panics"} {
			conns, resume := make(chan net.Conn, 1), make(chan struct{})
			limiter := newLimiter(t, nil)
			cfg := hundred()
			cfg.Concurrency = httplimit.Policy{Strategy: limiter.InFlight(), Limit: 1}
			if countIf {
				cfg.CountIf = func(status int) bool { return status != http.StatusSwitchingProtocols }
			}
			guard := httplimit.New(limiter.FixedWindow(), cfg)(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, rw, err := http.NewResponseController(w).Hijack()
					if !assert.NoError(t, err) {
						return
					}
					_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
					_ = rw.Flush()
					_, half := conn.(interface{ CloseWrite() error })
					assert.True(t, half, "a direction can be closed, as of a TCP connection")
					conns <- conn
					<-resume
					if how == "panics" {
						panic(http.ErrAbortHandler)
					}
				}))
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if countIf { // the writer of another middleware, which has no Hijack of its own
					w = unwrapper{w}
				}
				guard.ServeHTTP(w, r)
			}))
			held := func() uint64 { return places(t, limiter.InFlight(), "127.0.0.1") }
			client, err := net.Dial("tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			line, err := bufio.NewReader(client).ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "HTTP/1.1 101 Switching Protocols\r\n", line)
			conn := <-conns
			assert.EqualValues(t, 1, held())
			switch how {
			case "closes after it returns":
				close(resume)
				for range 50 { // the handler has long returned by some of these
					require.EqualValues(t, 1, held())
					time.Sleep(time.Millisecond) // between two looks
				}
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { _ = conn.Close() })
				}
				wg.Wait()
			case "closes before it returns":
				require.NoError(t, conn.Close())
				assert.Error(t, conn.Close())
				assert.EqualValues(t, 1, held(), "the handler is still at work")
				close(resume)
			case "panics":
				close(resume)
			}
			eventually(t, 0, held)
			_ = conn.Close()
			assert.Zero(t, held(), how)
			_ = client.Close()
			srv.Close()
		}
	}
}

type unwrapper struct{ http.ResponseWriter }

func (w unwrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// failingHolder returns s, whose places of keys that which reports cannot be released.
func failingHolder(s *weir.InFlight, which func(key string) bool) weir.Strategy {
	return ops.Through(ops.Afar(s), func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpRelease && which(op.Key) {
			op.Err = assert.AnError
			return
		}
		next()
	})
}

// A Release that fails is logged, and the client has its answer.
func TestAFailedReleaseIsLogged(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := hundred()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Concurrency = httplimit.Policy{Strategy: failingHolder(limiter.InFlight(),
		func(string) bool { return true }), Limit: 100}
	h := httplimit.New(limiter.FixedWindow(), cfg)(&hello{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from("203.0.113.7:1"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, log.String(), "a place in flight was not released")
}
