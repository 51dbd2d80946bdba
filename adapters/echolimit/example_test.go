package echolimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/httplimit"
)

// request sends a request to e and prints the answer.
func request(e *echo.Echo) {
	server := httptest.NewServer(e) // e.Start(":8080")
	defer server.Close()
	for range 3 {
		resp, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println(strings.Join(append([]string{resp.Status}, resp.Header["Ratelimit-Policy"]...), " "))
	}
}

func ExampleNew() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	guard := httplimit.NewGuard(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), // behind a proxy: httplimit.ClientIP
		Limit:     2,
		Duration:  time.Hour,
	})
	e := echo.New()
	e.Use(echolimit.New(guard))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })

	request(e)
	// Output:
	// 200 OK "2/1h";q=2;w=3600
	// 200 OK "2/1h";q=2;w=3600
	// 429 Too Many Requests "2/1h";q=2;w=3600
}

func ExampleNewStore() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	e := echo.New()
	e.Use(middleware.RateLimiter(echolimit.NewStore(limiter.SlidingWindow(), httplimit.Config{
		Limit:    2,
		Duration: time.Hour,
	})))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })

	request(e)
	// Output:
	// 200 OK "2/1h";q=2;w=3600
	// 200 OK "2/1h";q=2;w=3600
	// 429 Too Many Requests "2/1h";q=2;w=3600
}
