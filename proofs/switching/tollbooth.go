package switching

import (
	"net/http"
	"time"

	"github.com/didip/tollbooth/v7"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func beforeTollbooth(next http.Handler) http.Handler {
	return tollbooth.LimitHandler(tollbooth.NewLimiter(3, nil), next)
}

func afterTollbooth(limiter *weir.Limiter, next http.Handler) http.Handler {
	return httplimit.New(limiter.TokenBucket(3).Limit(3, time.Second), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), // behind a proxy: httplimit.ClientIP, with the proxy's address
	})(next)
}
