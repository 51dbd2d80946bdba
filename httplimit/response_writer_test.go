package httplimit_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

// Informational responses have no fields, and the final one has them once, whether the handler
// keeps the header between the two, or clears it as httputil.ReverseProxy does.
func TestOnlyTheFinalAnswerHasTheFields(t *testing.T) {
	hints := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Ratelimit-Policy-Of", "the handler")
		w.WriteHeader(http.StatusTeapot)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"upstream";r=5`)
		hints(w, r)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		next http.Handler
		want []string
	}{
		"a handler": {http.HandlerFunc(hints), []string{`"100/1m";r=99;t=60`}},
		"a reverse proxy": {httputil.NewSingleHostReverseProxy(target),
			[]string{`"100/1m";r=99;t=60`, `"upstream";r=5`}},
	} {
		for _, counting := range []bool{false, true} {
			cfg := hundred()
			if counting {
				cfg.CountIf = func(int) bool { return true }
			}
			server := httptest.NewServer(httplimit.New(admitting(1, time.Minute), cfg)(row.next))
			early := 0
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				early++
				assert.Equal(t, http.StatusEarlyHints, code)
				assert.NotContains(t, h, "Ratelimit-Policy", name)
				assert.NotContains(t, h["Ratelimit"], `"100/1m";r=99;t=60`, name)
				assert.NotEmpty(t, h["Link"])
				return nil
			}}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace),
				http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			server.Close()
			assert.Equal(t, 2, early, name)
			assert.Equal(t, http.StatusTeapot, resp.StatusCode)
			assert.Equal(t, []string{`"100/1m";q=100;w=60`}, resp.Header["Ratelimit-Policy"], name)
			assert.Equal(t, row.want, resp.Header["Ratelimit"], name)
		}
	}
}

// A status after the final one changes no field, also an informational one.
func TestNoFieldIsRemovedAfterTheFinalAnswer(t *testing.T) {
	var seen []int
	w := statuses{httptest.NewRecorder(), func(status int, h http.Header) {
		seen = append(seen, status)
		assert.NotEmpty(t, h["Ratelimit"], status)
	}}
	httplimit.New(admitting(1, time.Minute), hundred())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusEarlyHints)
		})).ServeHTTP(w, from("203.0.113.7:1"))
	assert.Equal(t, []int{http.StatusTeapot, http.StatusEarlyHints}, seen)
}

// statuses reports each status that is written, with the header then.
type statuses struct {
	http.ResponseWriter
	report func(status int, h http.Header)
}

func (s statuses) WriteHeader(status int) { s.report(status, s.Header()) }

// Flush returns the error of the underlying writer, with and without CountIf.
func TestFlushReturnsTheErrorOfTheWriterWithin(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, counting := range []bool{false, true} {
		cfg := hundred()
		if counting {
			cfg.CountIf = func(int) bool { return true }
		}
		httplimit.New(admitting(1, time.Second), cfg)(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				assert.ErrorIs(t, http.NewResponseController(w).Flush(), broken)
			})).ServeHTTP(brokenFlusher{httptest.NewRecorder(), broken}, from("203.0.113.7:1"))
	}
}

type brokenFlusher struct {
	http.ResponseWriter
	err error
}

func (b brokenFlusher) Flush()            {}
func (b brokenFlusher) FlushError() error { return b.err }

func TestHandlersCanPushOverHTTP2(t *testing.T) {
	pushed := ""
	w := pusher{httptest.NewRecorder(), &pushed}
	httplimit.New(admitting(1, time.Second), hundred())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			assert.NoError(t, w.(http.Pusher).Push("/style.css", nil))
			_, hijacks := w.(http.Hijacker)
			assert.False(t, hijacks)
			_, err := io.WriteString(w, "x")
			assert.NoError(t, err)
		})).ServeHTTP(w, from("203.0.113.7:1"))
	assert.Equal(t, "/style.css", pushed)
}

type pusher struct {
	*httptest.ResponseRecorder
	pushed *string
}

func (p pusher) Push(target string, _ *http.PushOptions) error { *p.pushed = target; return nil }

// A client of HTTP/2 that leaves during a 1xx ends WriteHeader while net/http still reads what it
// has to send; the race detector finds a change of that.
func TestClientsThatLeaveDuringA1xx(t *testing.T) {
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1e6, Duration: time.Hour}
	limiter := newLimiter(t, nil)
	srv := httptest.NewUnstartedServer(httplimit.New(limiter.FixedWindow(), cfg)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.WriteHeader(http.StatusEarlyHints)
			}
		})))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 25 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5e6)))
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
				if resp, err := srv.Client().Do(r); err == nil {
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Wait()
}
