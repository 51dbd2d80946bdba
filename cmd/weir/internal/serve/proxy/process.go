package proxy

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/internal/core/throttle"
)

// process is what a Proxy keeps when its configuration changes.
type process struct {
	current atomic.Pointer[Proxy]

	via     string // this process in the Via field
	limiter *weir.Limiter
	redis   *onredis.Store        // nil: limits are local
	ruled   *ruled                // nil: no rules
	conns   atomic.Pointer[conns] // of clients; nil before Run
	gate    *live.Gate            // nil: no token
	cert    *live.Certificate     // nil: plain HTTP

	denied  *denyList
	state   *stateFile // nil: none
	tally   tally
	places  atomic.Int64 // of the bound on requests in flight of all clients, which are taken
	denials *live.Denials
	recent  *recent
	callers *traffic.Callers                // by what they send, whatever is decided
	lately  *traffic.Lately[traffic.Sample] // some of what was admitted
	served  traffic.Upstream

	meter   live.Meter
	table   tableFigures
	watch   watch
	started time.Time

	loops, redisFailed throttle.Throttle // of their records in the log

	inFlight sync.WaitGroup // requests, including hijacked ones
	open     atomic.Int64   // the number of these
	stopping atomic.Bool
}

// before returns the configuration that serves until the next one begins, at first an empty one.
func (p *process) before() *Proxy { return cmp.Or(p.current.Load(), new(Proxy)) }

// now is the handler that serves as the current configuration says.
func (p *process) now(of func(*Proxy) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(p.current.Load()).ServeHTTP(w, r)
	})
}
