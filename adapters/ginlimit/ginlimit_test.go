package ginlimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// serve starts an engine that the routes are added to, and returns its URL.
func serve(t *testing.T, routes func(*gin.Engine)) string {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	routes(engine)
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	return server.URL
}

func hello(c *gin.Context) { c.String(http.StatusOK, "hello") }

var web = doortest.Web{
	Name: "gin", Package: "ginlimit", Method: http.MethodHead,
	New: func(guard *httplimit.Guard) { ginlimit.New(guard) },
	Own: ginlimit.OnDenied(func(c *gin.Context, d httplimit.Decision) error {
		c.Header("Own", "own")
		c.String(d.Status, "own")
		return nil
	}),
	User: func(r *http.Request) string { return ginlimit.Context(r).GetString("user") },
	Serve: func(t *testing.T, guard *httplimit.Guard, answer doortest.Answerer) string {
		return serve(t, func(e *gin.Engine) {
			e.Use(func(c *gin.Context) { c.Set("user", c.Query("user")) }, ginlimit.New(guard))
			e.Any("/", func(c *gin.Context) {
				status, text := answer(c.Request.Context(), c.Request.Header)
				c.String(status, text)
			})
			e.GET("/empty", func(c *gin.Context) { c.Status(http.StatusNoContent) })
			e.GET("/login", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
		})
	},
	Pages: []doortest.Page{
		{Path: "/", Status: 200}, {Path: "/empty", Status: 204}, {Path: "/nowhere", Status: 404},
		{Path: "/login", Status: 401},
	},
	Routes: func(t *testing.T, guard *httplimit.Guard) string {
		return serve(t, func(e *gin.Engine) {
			limit := ginlimit.New(guard)
			e.GET("/users/:id", limit, hello)
			e.HEAD("/users/:id", limit, hello)
			e.GET("/orders/:id", limit, hello)
		})
	},
	Handler: func(guard *httplimit.Guard, handle http.HandlerFunc) http.Handler {
		e := gin.New()
		e.GET("/", ginlimit.New(guard), func(c *gin.Context) { handle(c.Writer, c.Request) })
		return e
	},
}

func TestTheDoorOfGin(t *testing.T) { doortest.Run(t, "../..", web.Door()) }

func TestTheAdapter(t *testing.T) {
	web.Check(t)
	assert.Nil(t, ginlimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
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
		limiter, clock := doortest.NewLimiter(t)
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
	limiter, _ := doortest.NewLimiter(t)
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
	resp, _ := doortest.Get(t, url)
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}
