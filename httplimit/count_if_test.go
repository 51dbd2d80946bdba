package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// writeHeaders returns a handler that writes the given statuses.
func writeHeaders(codes ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, code := range codes {
			w.WriteHeader(code)
		}
	}
}

func writeBody(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }

func flush(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }

// A client that cancels its request or breaks off its body hides the status of its attempt. Such
// attempts count although CountIf counts only 401.
func TestCanceledAttemptsCount(t *testing.T) {
	failed := errors.New("connection reset")
	for name, row := range map[string]struct {
		handle   http.HandlerFunc
		body     io.ReadCloser
		canceled bool // the context is done before the handler runs
		counts   bool
	}{
		"canceled, nothing is written": {func(http.ResponseWriter, *http.Request) {}, nil, true, true},
		"canceled, 499 is written":     {writeHeaders(499), nil, true, true},
		"canceled, a body is written":  {writeBody, nil, true, true},
		"the body ends with an error": {readAndAnswer(502), body{strings.NewReader(`{"password":"x"}`),
			failed}, false, true},
		"the body exceeds MaxBytes": {readAndAnswer(413),
			body{strings.NewReader("x"), &http.MaxBytesError{Limit: 1}}, false, true},
		"the whole body, and 200": {readAndAnswer(200), body{strings.NewReader("x"), io.EOF}, false,
			false},
		"the body is closed, then read": {closeAndRead,
			body{strings.NewReader("x"), http.ErrBodyReadAfterClose}, false, false},
		"not canceled, 401": {writeHeaders(401), nil, false, true},
		"not canceled, nothing is written": {func(http.ResponseWriter, *http.Request) {}, nil, false,
			false},
		"not canceled, a flush sends 200": {flush, nil, false, false},
		"canceled after a status of 200":  {nil, nil, false, false},
		"a copy of the request was made":  {nil, body{strings.NewReader("x"), failed}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := admitting(1, time.Minute)
			cfg := hundred()
			cfg.CountIf = func(status int) bool { return status == http.StatusUnauthorized }
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			handle := row.handle
			switch {
			case handle == nil && row.body == nil:
				handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); hangUp() }
			case handle == nil:
				handle = func(w http.ResponseWriter, r *http.Request) {
					readAndAnswer(400)(w, r.Clone(r.Context()))
				}
			}
			r := from("203.0.113.7:5000").WithContext(ctx)
			r.Body = row.body
			if row.canceled {
				hangUp()
			}
			httplimit.New(fake, cfg)(handle).ServeHTTP(httptest.NewRecorder(), r)
			assert.Equal(t, !row.counts, slices.Contains(methods(fake), "Refund"))
		})
	}
}

func readAndAnswer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.WriteHeader(status)
	}
}

func closeAndRead(w http.ResponseWriter, r *http.Request) {
	_ = r.Body.Close()
	readAndAnswer(200)(w, r)
}

// body is a request body that ends with err.
type body struct {
	*strings.Reader
	err error
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

func (body) Close() error { return nil }

// Of sixty attempts over real connections, each closed before the response, three run at a limit of
// three.
func TestClosedConnectionsDoNotAllowMoreAttempts(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	var attempts atomic.Int64
	done := make(chan struct{}, 60)
	cfg := httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Name: "failed logins", Limit: 3, Duration: time.Hour,
		Now:     at(noon),
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
	}
	guard := httplimit.New(limiter.FixedWindow(), cfg)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts.Add(1)
			<-r.Context().Done() // the attempt outlasts the connection
			w.WriteHeader(http.StatusUnauthorized)
		}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard.ServeHTTP(w, r)
		done <- struct{}{}
	}))
	defer server.Close()
	for range 60 {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		require.NoError(t, err)
		if attempts.Load() < 3 {
			require.Eventually(t, func() bool { return attempts.Load() > 0 }, 10*time.Second,
				time.Millisecond)
		}
		require.NoError(t, conn.Close())
		<-done
	}
	assert.EqualValues(t, 3, attempts.Load())
}

// With CountIf, handlers get a ResponseWriter that observes the status and supports the same
// interfaces.
func TestCountIfSeesEveryStatusAndKeepsInterfaces(t *testing.T) {
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		want   int
	}{
		"nothing written":         {func(http.ResponseWriter, *http.Request) {}, 200},
		"a body alone":            {writeBody, 200},
		"a status":                {writeHeaders(401), 401},
		"the first status counts": {writeHeaders(401, 200), 401},
		"early hints do not":      {writeHeaders(103, 404), 404},
		"copied from a reader": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("x"))
		}, 200},
		"flushed by assertion": {flush, 200},
		"flushed by a controller": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
		}, 200},
		"a deadline by controller": {func(w http.ResponseWriter, _ *http.Request) {
			must1(http.NewResponseController(w).SetWriteDeadline(time.Time{}))
		}, 200},
		"hijacked by assertion": {func(w http.ResponseWriter, _ *http.Request) {
			writeTo(w.(http.Hijacker).Hijack())("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		}, 101},
		"hijacked by a controller, and refused": {func(w http.ResponseWriter, _ *http.Request) {
			writeTo(http.NewResponseController(w).Hijack())("HTTP/1.1 401 Unauthorized\r\n\r\n")
		}, 401},
		"hijacked, and refused through the buffer": {func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			must1(err)
			_, _ = rw.WriteString("HTTP/1.1 401 Unauthorized\r\n\r\n")
			must1(rw.Flush())
			_ = conn.Close()
		}, 401},
		"hijacked after the status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(101)
			writeTo(http.NewResponseController(w).Hijack())("data")
		}, 101},
	} {
		t.Run(name, func(t *testing.T) {
			status := make(chan int, 1)
			cfg := hundred()
			cfg.CountIf = func(s int) bool { status <- s; return true }
			server := httptest.NewUnstartedServer(httplimit.New(admitting(1, time.Second), cfg)(row.handle))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // net/http logs a second status
			server.Start()
			defer server.Close()
			if resp, err := http.Get(server.URL); err == nil {
				_ = resp.Body.Close()
			}
			select {
			case got := <-status:
				assert.Equal(t, row.want, got)
			case <-time.After(10 * time.Second):
				t.Error("CountIf was not called")
			}
		})
	}
}

func must1(err error) {
	if err != nil {
		panic(err)
	}
}

// writeTo returns a function that writes to a hijacked connection and closes it.
func writeTo(conn net.Conn, _ *bufio.ReadWriter, err error) func(texts ...string) {
	must1(err)
	return func(texts ...string) {
		for _, text := range texts {
			_, _ = io.WriteString(conn, text)
		}
		_ = conn.Close()
	}
}

// A handler that hijacks the connection and writes no final status first cannot make its request
// free.
func TestHijackedWithoutAStatusCounts(t *testing.T) {
	for name, texts := range map[string][]string{
		"nothing":                 nil,
		"no status line":          {"hello"},
		"an informational status": {"HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"},
		"an invalid status":       {"HTTP/1.1 2x0 OK\r\n\r\n"},
		"a status line in parts":  {"HTTP/1.1 ", "200 OK\r\n\r\n"},
	} {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Hour}
		cfg.CountIf = func(s int) bool { t.Errorf("%s: CountIf(%d)", name, s); return false }
		guard := httplimit.New(limiter.SlidingWindow(), cfg)(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				writeTo(http.NewResponseController(w).Hijack())(texts...)
			}))
		served := make(chan bool, 2)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guard.ServeHTTP(w, r)
			served <- true
		}))
		if resp, err := http.Get(server.URL); err == nil {
			_ = resp.Body.Close()
		}
		<-served
		resp, err := http.Get(server.URL)
		require.NoError(t, err, name)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, name)
		_ = resp.Body.Close()
		require.NoError(t, limiter.Close())
		server.Close()
	}
}

func TestCountIfAddsNoInterface(t *testing.T) {
	type plain struct{ http.ResponseWriter }
	type flusher struct {
		http.ResponseWriter
		http.Flusher
	}
	recorder := httptest.NewRecorder()
	for _, w := range []http.ResponseWriter{
		plain{recorder}, flusher{recorder, recorder}, hijackOnly{recorder},
	} {
		cfg := hundred()
		cfg.CountIf = func(int) bool { return true }
		_, canFlush := w.(http.Flusher)
		_, canHijack := w.(http.Hijacker)
		ran := false
		httplimit.New(admitting(1, time.Second), cfg)(
			http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
				ran = true
				_, flushes := got.(http.Flusher)
				_, hijacks := got.(http.Hijacker)
				assert.Equal(t, canFlush, flushes)
				assert.Equal(t, canHijack, hijacks)
				assert.Equal(t, w, got.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
			})).ServeHTTP(w, from("203.0.113.7:1"))
		require.True(t, ran)
	}
}

type hijackOnly struct{ http.ResponseWriter }

func (hijackOnly) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// A request that no policy decides on gives nothing back, although its call served another before.
func TestRequestsThatAreNotDecidedGiveNothingBack(t *testing.T) {
	l, clock := atNoon()
	h := httplimit.New(l.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 5, Duration: time.Hour, Now: clock.Now,
		CountIf: func(status int) bool { return status == http.StatusUnauthorized },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	passed := 0
	for range 100 {
		if respond(h, from("203.0.113.7:1")).Code == http.StatusUnauthorized {
			passed++
		}
		preflight := from("203.0.113.7:1")
		preflight.Method = http.MethodOptions
		preflight.Header.Set("Origin", "https://example.com")
		preflight.Header.Set("Access-Control-Request-Method", "POST")
		assert.Equal(t, http.StatusNoContent, respond(h, preflight).Code)
	}
	assert.Equal(t, 5, passed)
}
