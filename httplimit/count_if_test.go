package httplimit_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

// With CountIf a handler gets a writer that watches the status; it must be able to do what it could before.
func TestCountIfSeesEveryStatusAndHidesNothing(t *testing.T) {
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		want   int
	}{
		"nothing written":         {func(http.ResponseWriter, *http.Request) {}, 200},
		"a body alone":            {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 200},
		"a status":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 401},
		"the first status counts": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); w.WriteHeader(200) }, 401},
		"early hints do not":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		"copied from a reader":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) }, 200},
		"flushed by assertion":    {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200},
		"flushed by a controller": {func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, 200},
		"a deadline by controller": {func(w http.ResponseWriter, _ *http.Request) {
			must1(http.NewResponseController(w).SetWriteDeadline(time.Time{}))
		}, 200},
		"hijacked by assertion":    {func(w http.ResponseWriter, _ *http.Request) { hang(w.(http.Hijacker).Hijack()) }, 101},
		"hijacked by a controller": {func(w http.ResponseWriter, _ *http.Request) { hang(http.NewResponseController(w).Hijack()) }, 101},
	} {
		t.Run(name, func(t *testing.T) {
			status := make(chan int, 1)
			cfg := hundred()
			cfg.CountIf = func(s int) bool { status <- s; return true }
			server := httptest.NewUnstartedServer(httplimit.New(admitting(1, time.Second), cfg)(row.handle))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // it minds a second status
			server.Start()
			defer server.Close()
			if resp, err := http.Get(server.URL); err == nil {
				_ = resp.Body.Close()
			}
			select {
			case got := <-status:
				assert.Equal(t, row.want, got)
			case <-time.After(10 * time.Second):
				t.Error("CountIf was not asked")
			}
		})
	}
}

func must1(err error) {
	if err != nil {
		panic(err)
	}
}

func hang(conn net.Conn, _ *bufio.ReadWriter, err error) {
	must1(err)
	_ = conn.Close()
}

func TestCountIfInventsNoInterface(t *testing.T) {
	type plain struct{ http.ResponseWriter }
	type flusher struct {
		http.ResponseWriter
		http.Flusher
	}
	recorder := httptest.NewRecorder()
	for _, w := range []http.ResponseWriter{plain{recorder}, flusher{recorder, recorder}, hijackOnly{recorder}} {
		cfg := hundred()
		cfg.CountIf = func(int) bool { return true }
		_, canFlush := w.(http.Flusher)
		_, canHijack := w.(http.Hijacker)
		ran := false
		httplimit.New(admitting(1, time.Second), cfg)(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
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
