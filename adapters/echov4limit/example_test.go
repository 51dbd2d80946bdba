package echov4limit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
)

// request sends requests to e and prints the answers. Each claims to come from another address.
func request(e *echo.Echo) {
	server := httptest.NewServer(e) // e.Start(":8080")
	defer server.Close()
	for i := range 3 {
		r, err := http.NewRequest(http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
		resp, err := http.DefaultClient.Do(r)
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
	e.Use(echov4limit.New(guard))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })

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
	// Or clients choose their address; behind proxies: ExtractIPFromXFFHeader.
	e.IPExtractor = echo.ExtractIPDirect()
	e.Use(middleware.RateLimiter(echov4limit.NewStore(limiter.SlidingWindow(), httplimit.Config{
		Limit:    2,
		Duration: time.Hour,
	})))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })

	request(e)
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
}
