package tollbooth

import (
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func After(limiter *weir.Limiter, next http.Handler) http.Handler {
	return httplimit.New(limiter.TokenBucket(3).Limit(3, time.Second), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), // behind a proxy: httplimit.ClientIP, with the proxy's address
	})(next)
}
