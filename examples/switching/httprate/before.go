// Package httprate limits client addresses to 3 requests a minute, before and after.
package httprate

import (
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

func Before() func(http.Handler) http.Handler {
	return httprate.LimitByIP(3, time.Minute)
}
