package switching

import (
	"net/http"
	"time"

	theirs "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// After a switch it is afterCounter.
func beforeGoLimiter() (func(http.Handler) http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	middleware, err := theirs.NewMiddleware(store, theirs.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return middleware.Handle, nil
}
