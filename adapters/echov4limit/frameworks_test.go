package echov4limit_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestDenialThroughTheErrorHandler(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(e *echo.Echo) {
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			var failure *echo.HTTPError
			if errors.As(err, &failure) {
				_ = c.JSON(failure.Code, map[string]any{"error": failure.Message})
			}
		}
		cfg.Respond = echov4limit.OnDenied(func(_ echo.Context, d httplimit.Decision) error {
			return echo.NewHTTPError(d.Status, "over the limit "+d.Policy)
		})
		e.Use(echov4limit.New(httplimit.NewGuard(perClient, cfg)))
		e.GET("/", hello)
	})
	_, text := doortest.Admitted(t, url)
	assert.JSONEq(t, `{"error": "over the limit 100/1m"}`, text)
}

// A client has at most two streams at a time, and a stream is in flight until it ends.
func TestStreams(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	subscribe, end := doortest.Streams()
	url := serve(t, func(e *echo.Echo) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor:   httplimit.RemoteAddr(),
			Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(2)}, // streams at a time
		})
		e.GET("/events", func(c echo.Context) error {
			c.Response().Header().Set("Content-Type", "text/event-stream")
			for event := range subscribe() {
				if _, err := fmt.Fprintf(c.Response(), "data: %s\n\n", event); err != nil {
					return err
				}
				if err := http.NewResponseController(c.Response()).Flush(); err != nil {
					return err
				}
			}
			return nil
		}, echov4limit.New(guard))
	})
	doortest.CheckStreams(t, url, end)
}
