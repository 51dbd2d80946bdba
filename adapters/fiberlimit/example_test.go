package fiberlimit_test

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
)

// request serves app, sends requests to it, and prints a field of the answers.
func request(app *fiber.App, field string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // app.Listen(":8080")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	for range 3 {
		resp, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get(field))
	}
	http.DefaultClient.CloseIdleConnections()
	if err := app.Shutdown(); err != nil {
		log.Fatal(err)
	}
	<-done
}

func ExampleNew() {
	weirLimiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer weirLimiter.Close()
	guard := httplimit.NewGuard(weirLimiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), // behind a proxy: httplimit.ClientIP
		Limit:     2,
		Duration:  time.Hour,
	})
	app := fiber.New()
	app.Use(fiberlimit.New(guard))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })

	request(app, "RateLimit-Policy")
	// Output:
	// 200 "2/1h";q=2;w=3600
	// 200 "2/1h";q=2;w=3600
	// 429 "2/1h";q=2;w=3600
}

func ExampleHandler() {
	weirLimiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer weirLimiter.Close()
	app := fiber.New()
	app.Use(limiter.New(limiter.Config{
		Max:               2,
		Expiration:        time.Hour,
		LimiterMiddleware: fiberlimit.Handler(weirLimiter.SlidingWindow(), httplimit.Config{Name: "api"}),
	}))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })

	request(app, "X-RateLimit-Remaining")
	// Output:
	// 200 1
	// 200 0
	// 429 0
}
