// Package ulule limits client addresses to 3 requests a minute, before and after.
package ulule

import (
	"net/http"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

func Before() func(http.Handler) http.Handler {
	instance := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Minute, Limit: 3})
	return stdlib.NewMiddleware(instance).Handler
}
