package doortest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/weirtest"
)

// Web is a web framework, and the adapter for it.
type Web struct {
	Name    string // of its door
	Package string // the adapter's

	// New is that of the adapter.
	New func(guard *httplimit.Guard)

	// Own is a Respond that answers by the framework's context as [Own] does.
	Own func(w http.ResponseWriter, r *http.Request, d httplimit.Decision)

	// User returns the user of the query, which a handler before the guard has found, by the
	// framework's context.
	User func(r *http.Request) string

	// Serve starts a server that is behind that handler and the guard as a whole. It has Pages, and
	// at / what answer says.
	Serve func(t *testing.T, guard *httplimit.Guard, answer Answerer) (url string)

	// Pages are those of every kind of answer, errors included. The last one answers 401.
	Pages []Page

	// Routes starts a server that has a guard for each of the routes GET /users/:id, the same for
	// Method, and GET /orders/:id.
	Routes func(t *testing.T, guard *httplimit.Guard) (url string)
	Method string

	// Handler has handle, in a framework of net/http, answer GET / behind the guard. Nil: it is of
	// another kind.
	Handler func(guard *httplimit.Guard, handle http.HandlerFunc) http.Handler
}

// Answerer returns what to answer a request with, by its context and header.
type Answerer func(ctx context.Context, header http.Header) (status int, text string)

// Page is an answer of a server: by its path the status, and a part of the body.
type Page struct {
	Path   string
	Status int
	Body   string
}

// Door returns the door that the adapter is.
func (web *Web) Door() Door {
	return Door{Name: web.Name, Open: func(t *testing.T, s *Setup) func(...string) Answer {
		l := Limiter(t)
		cfg := s.Guard(l)
		if s.Own {
			cfg.Respond = web.Own
		}
		return Send(t, web.Serve(t, httplimit.NewGuard(s.Limit(l), cfg),
			func(_ context.Context, header http.Header) (int, string) { return s.Serve(header), "" }))
	}}
}

// Check checks the adapter, beside its door.
func (web *Web) Check(t *testing.T) {
	t.Run("denial and recovery", web.recovery)
	t.Run("a limit per route and method", web.routes)
	t.Run("a key from the context", web.context)
	t.Run("a Strategy that cannot decide", web.undecided)
	t.Run("CountIf sees the status", web.statuses)
	if web.Handler != nil {
		t.Run("a connection that is hijacked", web.hijacked)
		t.Run("a response that is flushed, and lasts", web.streamed)
	}
	assert.PanicsWithValue(t, web.Package+": no guard", func() { web.New(nil) })
}

// hello starts a server that answers "hello", or "bypassed" to requests that nobody has decided on.
func (web *Web) hello(t *testing.T, guard *httplimit.Guard) (url string) {
	return web.Serve(t, guard, func(ctx context.Context, _ http.Header) (int, string) {
		if httplimit.IsBypassed(ctx) {
			return http.StatusOK, "bypassed"
		}
		return http.StatusOK, "hello"
	})
}

// NewLimiter returns a Limiter on a clock that stands at 15 s past a minute.
func NewLimiter(t *testing.T) (*weir.Limiter, *weirtest.Clock) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 15, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	return limiter, clock
}

// Get sends a request with these header lines, names and values in turn.
func Get(t *testing.T, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodGet, url, lines...)
}

func do(t *testing.T, method, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(lines); i += 2 {
		req.Header.Add(lines[i], lines[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// Admitted checks that a limit of 100 admits so many requests and denies the next one, whose answer
// it returns.
func Admitted(t *testing.T, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	for range 100 {
		resp, _ := Get(t, url, lines...)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, text := Get(t, url, lines...)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Len(t, resp.Header["Ratelimit"], 1)
	return resp, text
}

// CheckPerRoute checks a limit of 100 for each of the routes /api/users/:id and /api/orders/:id.
func CheckPerRoute(t *testing.T, url string) {
	Admitted(t, url+"/api/users/1")
	resp, _ := Get(t, url+"/api/users/2")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "another path of the route")
	Admitted(t, url+"/api/orders/1")
}

// CheckPerUser checks a limit of 100 for each user, whom the header X-User names.
func CheckPerUser(t *testing.T, url string) {
	Admitted(t, url, "X-User", "alice")
	resp, _ := Get(t, url, "X-User", "bob")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = Get(t, url)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "nobody")
}

// CheckBehindAProxy checks a limit of 100 for each client of a proxy at 127.0.0.1.
func CheckBehindAProxy(t *testing.T, url string) {
	Admitted(t, url, "X-Forwarded-For", "203.0.113.1")
	resp, _ := Get(t, url, "X-Forwarded-For", "198.51.100.7, 203.0.113.1")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "an address that the client claims")
	resp, _ = Get(t, url, "X-Forwarded-For", "203.0.113.2")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another client")
}

// CheckOwnBody checks that a denial has a body of its own, in JSON, and the fields of a guard.
func CheckOwnBody(t *testing.T, url, body string) {
	resp, text := Admitted(t, url)
	assert.JSONEq(t, body, text)
	assert.Contains(t, resp.Header.Get("Content-Type"), "application/json")
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
}

// Streams returns a function whose channels have an event and stay open until end is closed.
func Streams() (subscribe func() <-chan string, end chan bool) {
	end = make(chan bool)
	return func() <-chan string {
		events := make(chan string, 1)
		events <- "hello"
		go func() { <-end; close(events) }()
		return events
	}, end
}

// CheckStreams checks that a client has at most two streams at a time at /events, which end with
// end, and that a stream is in flight until it ends.
func CheckStreams(t *testing.T, url string, end chan bool) {
	var open []*http.Response
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		open = append(open, resp)
	}
	third, _ := Get(t, url+"/events")
	assert.Equal(t, http.StatusTooManyRequests, third.StatusCode)
	close(end)
	for _, resp := range open {
		text, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(text), "data:")
		assert.NoError(t, resp.Body.Close())
	}
	require.Eventually(t, func() bool {
		resp, _ := Get(t, url+"/events")
		return resp.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// recovery checks two requests, a denial, and a request in the next minute.
func (web *Web) recovery(t *testing.T) {
	limiter, clock := NewLimiter(t)
	url := web.hello(t, httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
	}))
	for _, left := range []string{"1", "0"} {
		resp, text := Get(t, url)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
		assert.Equal(t, `"2/1m";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"2/1m";r=`+left+`;t=45`, resp.Header.Get("RateLimit"))
	}
	resp, text := Get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	assert.Contains(t, text, "quota-exceeded")
	assert.NotContains(t, text, "hello", "the handler ran")

	clock.Advance(45 * time.Second)
	resp, text = Get(t, url)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "hello", text)
}

// routes checks that the budget belongs to the method and the route, not to the path.
func (web *Web) routes(t *testing.T) {
	limiter, clock := NewLimiter(t)
	url := web.Routes(t, httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), Limit: 1,
		Duration: time.Minute, Now: clock.Now,
	}))
	for _, step := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/users/1", 200}, {http.MethodGet, "/users/2", 429},
		{http.MethodGet, "/orders/1", 200}, {http.MethodGet, "/nowhere", 404},
		{web.Method, "/users/3", 200},
	} {
		resp, _ := do(t, step.method, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, "%s %s", step.method, step.path)
	}
}

// context checks a key that an earlier handler has found out.
func (web *Web) context(t *testing.T) {
	limiter, clock := NewLimiter(t)
	url := web.hello(t, httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
			return web.User(r), nil
		}),
		Limit: 1, Duration: time.Minute, Now: clock.Now,
	}))
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 400},
	} {
		resp, _ := Get(t, url+"?user="+step.user)
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
}

// undecided checks requests that nobody can decide on.
func (web *Web) undecided(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		resp, text := Get(t, web.hello(t, httplimit.NewGuard(weirtest.FailAll(errors.New("down")),
			httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, FailOpen: open,
				Logger: slog.New(slog.DiscardHandler),
			})))
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, open, text == "bypassed", text)
	}
}

// statuses checks that CountIf sees the status of every kind of answer, and that the client gets it
// with the guard's fields. Only 401 counts.
func (web *Web) statuses(t *testing.T) {
	limiter, clock := NewLimiter(t)
	statuses := make(chan int, 1)
	url := web.hello(t, httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
		CountIf: func(status int) bool { statuses <- status; return status == http.StatusUnauthorized },
	}))
	for _, page := range web.Pages {
		resp, text := Get(t, url+page.Path)
		assert.Equal(t, page.Status, resp.StatusCode, page.Path)
		assert.Contains(t, text, page.Body, page.Path)
		assert.NotEmpty(t, resp.Header.Get("RateLimit"), page.Path)
		assert.Equal(t, page.Status, <-statuses, page.Path)
	}
	resp, _ := Get(t, url+web.Pages[len(web.Pages)-1].Path)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode,
		"the second attempt after a failed one")
}

// hijacked checks that a connection which a handler has hijacked is in flight until it is closed,
// and that CountIf sees the status which the handler has written there.
func (web *Web) hijacked(t *testing.T) {
	limiter, _ := NewLimiter(t)
	places := limiter.InFlight().Limit(1).Named("streams")
	held := func() bool {
		res, err := places.Peek(t.Context(), "127.0.0.1")
		require.NoError(t, err)
		return !res.Allowed()
	}
	statuses, conns, over := make(chan int, 1), make(chan net.Conn, 1), make(chan bool, 1)
	handler := web.Handler(httplimit.NewGuard(limiter.FixedWindow().Limit(1, time.Minute),
		httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Strategy: places},
			CountIf: func(status int) bool { statuses <- status; return true },
		}), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		assert.NoError(t, err)
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		assert.NoError(t, err)
		conns <- conn
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		over <- true
	}))
	defer server.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { assert.NoError(t, client.Close()) }()
	_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	conn := <-conns
	<-over
	assert.Equal(t, http.StatusSwitchingProtocols, <-statuses)
	assert.True(t, held())
	assert.NoError(t, conn.Close())
	assert.False(t, held())
}

// streamed checks that a stream takes no place of Overload, by the flush of a handler.
func (web *Web) streamed(t *testing.T) {
	limiter, _ := NewLimiter(t)
	places, err := overload.New(limiter, overload.Config{})
	require.NoError(t, err)
	over := make(chan struct{})
	server := httptest.NewServer(web.Handler(httplimit.NewGuard(nil, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Overload: places,
	}), func(w http.ResponseWriter, _ *http.Request) {
		flusher, ok := w.(http.Flusher)
		require.True(t, ok)
		assert.Equal(t, 1, places.Stats().InFlight)
		flusher.Flush()
		<-over
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return places.Stats().InFlight == 0 }, 10*time.Second,
		time.Millisecond)
	close(over)
	assert.NoError(t, resp.Body.Close())
}
