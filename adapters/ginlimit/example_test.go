package ginlimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/httplimit"
)

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
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(ginlimit.New(guard))
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	server := httptest.NewServer(engine) // engine.Run(":8080")
	defer server.Close()
	for range 3 {
		resp, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "2/1h";q=2;w=3600
	// 200 "2/1h";q=2;w=3600
	// 429 "2/1h";q=2;w=3600
}
