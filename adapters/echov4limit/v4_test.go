package echov4limit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// These are the differences between the tests for Echo v4 and for v5.

func written(c echo.Context) int { return c.Response().Status }

// assertDenialFields checks that there are none: Echo v4 does not hand the response to a store.
func assertDenialFields(t *testing.T, resp *http.Response) {
	assert.Empty(t, resp.Header.Get("Retry-After"))
	assert.Empty(t, resp.Header.Get("RateLimit"))
}

// A middleware of one's own can call AllowContext, as Echo v5 does.
func TestAllowContextSetsTheFields(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	store := echov4limit.NewStore(limiter.FixedWindow(),
		httplimit.Config{Limit: 1, Duration: time.Minute,
			Now: clock.Now})
	url := serve(t, func(e *echo.Echo) {
		e.GET("/", func(c echo.Context) error {
			if allowed, err := store.AllowContext(c, "alice"); !allowed {
				return echo.ErrTooManyRequests.WithInternal(err)
			}
			return hello(c)
		})
	})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		resp, _ := doortest.Get(t, url)
		assert.Equal(t, want, resp.StatusCode)
		assert.NotEmpty(t, resp.Header.Get("RateLimit"))
	}
	resp, _ := doortest.Get(t, url)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
}
