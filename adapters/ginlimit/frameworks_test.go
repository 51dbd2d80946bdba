package ginlimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// The code of these tests is in docs/http.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/http.md", "Gin", "frameworks_test.go")
	for _, section := range []string{"### One guard", "### Per route", "### Per user",
		"### An own denial body, and the error handler", "### Streams"} {
		docblocks.Check(t, "../../docs/http.md", section, "frameworks_test.go")
	}
}

func TestPerRoute(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	guard := httplimit.NewGuard(perClient, httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
	})
	url := serve(t, func(engine *gin.Engine) {
		api := engine.Group("/api", ginlimit.New(guard))
		api.GET("/users/:id", hello)
		api.GET("/orders/:id", hello)
	})
	doortest.CheckPerRoute(t, url)
}

func TestPerUser(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	authenticate := func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }
	url := serve(t, func(engine *gin.Engine) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
				return ginlimit.Context(r).GetString("user"), nil // set by authenticate; empty: 400
			}),
		})
		engine.Use(authenticate, ginlimit.New(guard))
		engine.GET("/", hello)
	})
	doortest.CheckPerUser(t, url)
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	url := serve(t, func(engine *gin.Engine) {
		proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		guard := httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
		engine.Use(ginlimit.New(guard))
		engine.GET("/", hello)
	})
	doortest.CheckBehindAProxy(t, url)
}

func TestOwnDenialBody(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(engine *gin.Engine) {
		cfg.Respond = ginlimit.OnDenied(func(c *gin.Context, d httplimit.Decision) error {
			c.JSON(d.Status, gin.H{"error": "too many requests", "limit": d.Policy})
			return nil
		})
		engine.Use(ginlimit.New(httplimit.NewGuard(perClient, cfg)))
		engine.GET("/", hello)
	})
	doortest.CheckOwnBody(t, url, `{"error": "too many requests", "limit": "100/1m"}`)
}

func TestDenialThroughTheErrorHandler(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(engine *gin.Engine) {
		engine.Use(func(c *gin.Context) {
			c.Next()
			if err := c.Errors.Last(); err != nil {
				c.JSON(-1, gin.H{"error": err.Error()}) // with the status that is set
			}
		})
		cfg.Respond = ginlimit.OnDenied(func(_ *gin.Context, d httplimit.Decision) error {
			return fmt.Errorf("over the limit %s", d.Policy)
		})
		engine.Use(ginlimit.New(httplimit.NewGuard(perClient, cfg)))
		engine.GET("/", hello)
	})
	_, text := doortest.Admitted(t, url)
	assert.JSONEq(t, `{"error": "over the limit 100/1m"}`, text)
}

// A client has at most two streams at a time, and a stream is in flight until it ends.
func TestStreams(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	subscribe, end := doortest.Streams()
	url := serve(t, func(engine *gin.Engine) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor:   httplimit.RemoteAddr(),
			Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(2)}, // streams at a time
		})
		engine.GET("/events", ginlimit.New(guard), func(c *gin.Context) {
			events := subscribe()
			c.Stream(func(io.Writer) bool {
				event, ok := <-events
				if ok {
					c.SSEvent("message", event)
				}
				return ok
			})
		})
	})
	doortest.CheckStreams(t, url, end)
}
