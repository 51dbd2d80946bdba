package ginlimit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// newLimiter returns a limiter on a clock that stands at 15 s past a minute.
func newLimiter(t *testing.T) (*weir.Limiter, *weirtest.Clock) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 15, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	return limiter, clock
}

// serve starts an engine that the routes are added to, and returns its URL.
func serve(t *testing.T, routes func(*gin.Engine)) string {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	routes(engine)
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	return server.URL
}

func hello(c *gin.Context) {
	if httplimit.IsBypassed(c.Request.Context()) {
		c.String(http.StatusOK, "bypassed")
		return
	}
	c.String(http.StatusOK, "hello")
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestDenialAndRecovery(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
	})
	url := serve(t, func(e *gin.Engine) { e.Use(ginlimit.New(guard)); e.GET("/", hello) })
	for _, left := range []string{"1", "0"} {
		resp, text := get(t, url)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
		assert.Equal(t, `"2/1m";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"2/1m";r=`+left+`;t=45`, resp.Header.Get("RateLimit"))
	}
	resp, text := get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	assert.Contains(t, text, "quota-exceeded")
	assert.NotContains(t, text, "hello", "the handler ran")

	clock.Advance(45 * time.Second)
	resp, text = get(t, url)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "hello", text)
}

// The budget belongs to the method and the route, not to the path.
func TestLimitPerRouteAndMethod(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), Limit: 1,
		Duration: time.Minute,
		Now:      clock.Now,
	})
	url := serve(t, func(e *gin.Engine) {
		api := e.Group("/api", ginlimit.New(guard))
		api.GET("/users/:id", hello)
		api.HEAD("/users/:id", hello)
		api.GET("/orders/:id", hello)
	})
	for _, step := range []struct {
		path string
		want int
	}{
		{"/api/users/1", 200}, {"/api/users/2", 429}, {"/api/orders/1", 200}, {"/nowhere", 404},
	} {
		resp, _ := get(t, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
	}
	resp, err := http.Head(url + "/api/users/3")
	require.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another method")
}

// The key may be what an earlier handler has found out.
func TestKeyFromTheContext(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
			return ginlimit.Context(r).GetString("user"), nil
		}),
		Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	authenticate := func(c *gin.Context) { c.Set("user", c.Query("user")) }
	url := serve(t, func(e *gin.Engine) { e.GET("/", authenticate, ginlimit.New(guard), hello) })
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 400},
	} {
		resp, _ := get(t, url+"?user="+step.user)
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
	assert.Nil(t, ginlimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

func TestStrategyThatCannotDecide(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		guard := httplimit.NewGuard(weirtest.FailAll(errors.New("down")), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, FailOpen: open,
			Logger: slog.New(slog.DiscardHandler),
		})
		resp, text := get(t, serve(t, func(e *gin.Engine) {
			e.Use(ginlimit.New(guard))
			e.GET("/", hello)
		}))
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, open, text == "bypassed", text)
	}
}

// Only failed logins count, and CountIf sees the status of every kind of answer.
func TestCountIfSeesTheStatus(t *testing.T) {
	limiter, clock := newLimiter(t)
	statuses := make(chan int, 1)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
		CountIf: func(status int) bool { statuses <- status; return status == http.StatusUnauthorized },
	})
	url := serve(t, func(e *gin.Engine) {
		e.Use(ginlimit.New(guard))
		e.GET("/", hello)
		e.GET("/empty", func(c *gin.Context) { c.Status(http.StatusNoContent) })
		e.GET("/login", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
	})
	for _, step := range []struct {
		path string
		want int
	}{
		{"/", 200}, {"/empty", 204}, {"/nowhere", 404}, {"/login", 401},
	} {
		resp, _ := get(t, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
		assert.Equal(t, step.want, <-statuses, step.path)
	}
	resp, _ := get(t, url+"/login")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode,
		"the second attempt after a failed one")
}

// The status counts that the answer began with, though the client hangs up before the handler
// returns.
func TestCountIfSeesTheStatusWhenTheAnswerBegins(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, begin := range map[string]func(*gin.Context){
		"Write":          func(c *gin.Context) { _, _ = c.Writer.Write([]byte("hello")) },
		"WriteString":    func(c *gin.Context) { _, _ = c.Writer.WriteString("hello") },
		"WriteHeaderNow": func(c *gin.Context) { c.Writer.WriteHeaderNow() },
		"Flush":          func(c *gin.Context) { c.Writer.Flush() },
	} {
		limiter, clock := newLimiter(t)
		guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
			CountIf: func(status int) bool { return status == http.StatusUnauthorized },
		})
		engine := gin.New()
		engine.Use(ginlimit.New(guard))
		ctx, hangUp := context.WithCancel(context.Background())
		engine.GET("/", func(c *gin.Context) {
			begin(c)
			hangUp()
		})
		for range 2 {
			w := httptest.NewRecorder()
			engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			assert.Equal(t, http.StatusOK, w.Code, name)
			ctx = context.Background()
		}
	}
}

// A panic leaves the writer to Recovery as it was before the guard.
func TestPanicRestoresTheWriter(t *testing.T) {
	limiter, _ := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
	})
	url := serve(t, func(e *gin.Engine) {
		var before gin.ResponseWriter
		e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) {
			assert.Same(t, before, c.Writer)
			c.AbortWithStatus(http.StatusInternalServerError)
		}))
		e.Use(func(c *gin.Context) { before = c.Writer }, ginlimit.New(guard))
		e.GET("/", func(*gin.Context) { panic("handler") })
	})
	resp, _ := get(t, url)
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

func TestNewWithoutAGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "ginlimit: no guard", func() { ginlimit.New(nil) })
}
