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
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/weirtest"
)

func overloadOf(t *testing.T, cfg overload.Config) *overload.Guard {
	g, err := overload.New(newLimiter(t, cfg.Now), cfg)
	require.NoError(t, err)
	return g
}

// full returns a Guard with most places, all of which are held.
func full(t *testing.T, most int, caller string) *overload.Guard {
	g := overloadOf(t, overload.Config{Most: most, Parts: [3]float64{1, 1, 1}, Share: 1, Now: at(noon)})
	for range most {
		_, err := g.Enter(t.Context(), caller, overload.Critical)
		require.NoError(t, err)
	}
	return g
}

func TestAFullServiceIsAnswered503(t *testing.T) {
	var out bytes.Buffer
	stats, policy := &httplimit.Stats{}, &weirtest.Fake{}
	cfg := hundred()
	cfg.Overload, cfg.Stats = full(t, 3, ""), stats
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Equal(t, overload.FullError{InFlight: 3, Most: 3, RetryAfter: time.Second}, *d.Full)
		assert.Equal(t, "overload", d.Source)
		slog.New(slog.NewTextHandler(&out, nil)).Info("refused", "decision", d)
	}
	w, ran := serve(policy, cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"},
		"Content-Type": {"application/problem+json"}}, w.Result().Header)
	assert.Equal(t, map[string]any{
		"type":   "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		"title":  "Temporary Reduced Capacity",
		"status": float64(503),
		"detail": "Too many requests are in flight.",
	}, problemOf(t, w))
	assert.Contains(t, out.String(), "decision.outcome=busy decision.source=overload "+
		`decision.class=normal decision.reason=full decision.full="overload: full: 3 of 3 for normal"`)
	assert.EqualValues(t, 1, stats.Count(httplimit.Busy))
	assert.Empty(t, policy.Calls(), "what is refused counts nowhere")
}

func TestACallerWhoHoldsItsShareIsAnswered429(t *testing.T) {
	for style, want := range map[httplimit.HeaderStyle]http.Header{
		httplimit.HeadersDraft: {"Ratelimit-Policy": {`"share";q=1;qu="concurrent-requests"`},
			"Ratelimit": {`"share";r=0;t=1`}},
		httplimit.HeadersLegacy: {"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Retry-After": {"1"}},
		httplimit.HeadersOriginal: {"Rate-Limiting-Total-Requests": {"2"}, "Rate-Limiting-State": {"Deny"}},
		httplimit.HeadersNone:     {},
	} {
		g := overloadOf(t, overload.Config{Most: 4, Now: at(noon)})
		for range 2 {
			_, err := g.Enter(t.Context(), "203.0.113.7", overload.Normal)
			require.NoError(t, err)
		}
		policy := &weirtest.Fake{}
		cfg := hundred()
		cfg.Overload, cfg.Headers = g, style
		w, ran := serve(policy, cfg, from("203.0.113.7:5000"))
		assert.Zero(t, ran)
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		assert.Equal(t, map[string]any{
			"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":             "Quota Exceeded",
			"status":            float64(429),
			"detail":            "This caller holds its share of what the service can handle at one time.",
			"violated-policies": []any{"share"},
		}, problemOf(t, w))
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		for _, name := range []string{"Retry-After", "Cache-Control", "Content-Type"} {
			w.Header().Del(name)
		}
		assert.Equal(t, want, w.Header())
		assert.Empty(t, policy.Calls())
		_, ran = serve(policy, cfg, from("203.0.113.8:5000"))
		assert.Equal(t, 1, ran, "another caller")
	}
}

// Retry-After has the jitter of the Config, and the RateLimit field agrees with it.
func TestAShareHasJitter(t *testing.T) {
	g := overloadOf(t, overload.Config{Most: 4, Now: at(noon)})
	for range 2 {
		_, err := g.Enter(t.Context(), "203.0.113.7", overload.Normal)
		require.NoError(t, err)
	}
	cfg := hundred()
	cfg.Overload, cfg.Jitter = g, time.Hour
	seen := map[string]bool{}
	for range 20 {
		w, _ := serve(&weirtest.Fake{}, cfg, from("203.0.113.7:5000"))
		seen[w.Header().Get("Retry-After")] = true
		assert.Equal(t, `"share";r=0;t=`+w.Header().Get("Retry-After"), w.Header().Get("RateLimit"))
	}
	assert.Greater(t, len(seen), 1)
}

func TestClassSaysWhatIsRefusedFirst(t *testing.T) {
	g := overloadOf(t, overload.Config{Most: 10, Now: at(noon)})
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Overload: g,
		Class: func(r *http.Request) overload.Class {
			n, _ := strconv.Atoi(r.Header.Get("Class"))
			return overload.Class(n)
		}}
	for _, step := range []struct {
		class string
		pass  int // and then one is refused
	}{{"-1", 7}, {"0", 2}, {"1", 1}} {
		one := func() int {
			w, _ := serve(nil, cfg, from("203.0.113.7:1", "Class: "+step.class))
			return w.Code
		}
		for range step.pass {
			assert.Equal(t, 200, one(), step)
			_, err := g.Enter(t.Context(), "", overload.Critical)
			require.NoError(t, err)
		}
		assert.Equal(t, 503, one(), step)
	}
}

// The deny list comes before, and what it refuses takes no place.
func TestOverloadComesAfterTheDenyList(t *testing.T) {
	cfg := hundred()
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, cfg.DenyList.Add(httplimit.DenyEntry{Key: "203.0.113.7"}))
	cfg.Overload = full(t, 1, "")
	w, _ := serve(&weirtest.Fake{}, cfg, from("203.0.113.7:1"))
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Zero(t, cfg.Overload.Stats().Refused[overload.Normal][overload.ClassFull])
	cfg.Skip = func(*http.Request) bool { return true }
	w, _ = serve(&weirtest.Fake{}, cfg, from("203.0.113.8:1"))
	assert.Equal(t, http.StatusOK, w.Code)
}

func TestOverloadInShadowModeRefusesNobody(t *testing.T) {
	cfg := hundred()
	cfg.Overload, cfg.Shadow = full(t, 1, "203.0.113.7"), true
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Equal(t, httplimit.Busy, d.Kind)
		assert.NotNil(t, d.Full)
	}
	w, ran := serve(&weirtest.Fake{}, cfg, from("203.0.113.7:1"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, w.Result().Header)
}

func TestAGuardOfAClosedLimiterCannotDecide(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	g, err := overload.New(l, overload.Config{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for open, want := range map[bool]int{false: 503, true: 200} {
		var out bytes.Buffer
		cfg := hundred()
		cfg.Overload, cfg.FailOpen = g, open
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		w, _ := serve(&weirtest.Fake{}, cfg, from("203.0.113.7:1"))
		assert.Equal(t, want, w.Code)
		assert.Contains(t, out.String(), `msg="httplimit: the overload guard failed" error="weir: limiter is closed"`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := hundred()
	cfg.Overload = overloadOf(t, overload.Config{})
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Equal(t, httplimit.Canceled, d.Kind)
	}
	_, ran := serve(&weirtest.Fake{}, cfg, from("203.0.113.7:1").WithContext(ctx))
	assert.Zero(t, ran)
}

func TestAClassNeedsAnOverload(t *testing.T) {
	cfg := hundred()
	cfg.Class = func(*http.Request) overload.Class { return overload.Normal }
	assert.PanicsWithValue(t, "httplimit: a Class without an Overload: set that too, such as to "+
		"overload.New(limiter, overload.Config{})", func() { httplimit.NewGuard(&weirtest.Fake{}, cfg) })
}

// Thirty requests that take 20 ms are measured, before and after one that must not be. Its place is
// held for as long as the row says.
func TestWhatSaysNothingOfTheServiceIsNotMeasured(t *testing.T) {
	const took, whole = 20 * time.Millisecond, 5 * time.Second
	leaves := map[string]time.Duration{"a client that leaves": 2 * time.Second,
		"a client that leaves at once": took / 40}
	pause := func(r *http.Request) {
		select {
		case <-time.After(whole):
		case <-r.Context().Done():
		}
	}
	for name, row := range map[string]struct {
		held     time.Duration // the place
		handle   func(w http.ResponseWriter, r *http.Request)
		measured bool
	}{
		"a slow request, the negative control": {whole, func(_ http.ResponseWriter, r *http.Request) {
			pause(r)
		}, true},
		"an upgrade": {0, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			assert.NoError(t, err)
			pause(r)
			_ = conn.Close()
		}, false},
		"server-sent events": {0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
			_, _ = io.WriteString(w, "data: 1\n\n")
			pause(r)
		}, false},
		"a response that is flushed, and lasts": {time.Second,
			func(w http.ResponseWriter, r *http.Request) {
				for range 2 {
					assert.NoError(t, http.NewResponseController(w).Flush())
				}
				pause(r)
			}, false},
		"a response that was slow when it was flushed": {whole,
			func(w http.ResponseWriter, r *http.Request) {
				pause(r)
				assert.NoError(t, http.NewResponseController(w).Flush())
			}, true},
		"a panic": {whole, func(_ http.ResponseWriter, r *http.Request) {
			pause(r)
			panic(http.ErrAbortHandler)
		}, false},
		"a client that leaves": {2 * time.Second, func(_ http.ResponseWriter, r *http.Request) {
			pause(r)
		}, true},
		"a client that leaves at once": {took / 20, func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(took / 20) // the guard measures how long it takes
		}, false},
		"a quick failure": {took / 20, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(took / 20) // the guard measures how long it takes
			w.WriteHeader(http.StatusBadGateway)
		}, false},
		"a slow failure": {whole, func(w http.ResponseWriter, r *http.Request) {
			pause(r)
			w.WriteHeader(http.StatusBadGateway)
		}, true},
		"a denial": {0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := overloadOf(t, overload.Config{})
				limiter := newLimiter(t, nil)
				var denied weir.Strategy = limiter.FixedWindow().Limit(1e6, time.Hour).Named("all")
				if row.handle == nil {
					denied = weirtest.DenyAll()
				}
				do := func(s weir.Strategy, h http.HandlerFunc) {
					cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Overload: g}
					if _, ok := s.(*weir.Limit); !ok {
						cfg.Name, cfg.Limit, cfg.Duration = name, 1, time.Hour
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if leaves[name] > 0 && s == denied {
						time.AfterFunc(leaves[name], cancel)
					}
					defer func() { _ = recover() }()
					httplimit.New(s, cfg)(h).ServeHTTP(&connWriter{httptest.NewRecorder()},
						from("203.0.113.7:1").WithContext(ctx))
				}
				all := limiter.FixedWindow().Limit(1e6, time.Hour)
				quick := func(http.ResponseWriter, *http.Request) { time.Sleep(took) }
				for range 30 {
					do(all, quick)
				}
				require.Equal(t, took, g.Stats().Latency.Round(time.Millisecond))
				handle := row.handle
				if handle == nil {
					handle = func(http.ResponseWriter, *http.Request) { t.Error("it is denied") }
				}
				go do(denied, handle)
				for at := range time.Duration(6) {
					synctest.Wait()
					assert.Equal(t, at*time.Second < row.held, g.Stats().InFlight == 1, at)
					time.Sleep(time.Second)
				}
				most, least := g.Stats().Latency, took
				for range 30 {
					do(all, quick)
					most, least = max(most, g.Stats().Latency), min(least, g.Stats().Latency)
				}
				assert.Equal(t, took, least.Round(took/50))
				assert.Equal(t, row.measured, most > took+time.Millisecond, most)
				assert.Equal(t, took, g.Stats().Latency.Round(time.Millisecond))
			})
		})
	}
}

// connWriter is a writer that can be flushed and hijacked.
type connWriter struct{ *httptest.ResponseRecorder }

func (w *connWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	client, server := net.Pipe()
	_ = client.Close()
	return server, nil, nil
}
