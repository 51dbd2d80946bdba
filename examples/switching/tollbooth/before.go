// Package tollbooth limits client addresses to 3 requests a second, before and after.
package tollbooth

import (
	"net/http"

	"github.com/didip/tollbooth/v7"
)

func Before(next http.Handler) http.Handler {
	return tollbooth.LimitHandler(tollbooth.NewLimiter(3, nil), next)
}
