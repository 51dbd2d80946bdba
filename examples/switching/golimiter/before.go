// Package golimiter limits client addresses to 3 requests a minute, before and after.
package golimiter

import (
	"net/http"
	"time"

	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

func Before() (func(http.Handler) http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	middleware, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return middleware.Handle, nil
}
