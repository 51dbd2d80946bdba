package echolimit

import (
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
)

// Store is a store for middleware.RateLimiterConfig, made by [NewStore]. It is safe for concurrent
// use.
//
// Echo calls AllowContext instead of Allow, which sends no fields, and whose functions of the
// Config get a request that is empty.
//
// Its errors say why a request was refused other than by a limit: the strategy could not decide,
// the identifier is empty, or the client is on the deny list. Echo's default DenyHandler answers
// 429 in any case.
type Store struct{ *store }

type store = weblimit.Store

var (
	_ middleware.RateLimiterStore        = (*Store)(nil)
	_ middleware.RateLimiterStoreContext = (*Store)(nil)
)

// NewStore returns a store that decides by s and the policies of cfg. The identifier that Echo's
// rate limiter extracts is the key, so the Extractor of cfg must be nil. By default it is
// c.RealIP(), which goes by the IPExtractor of the Echo.
//
// The store has no handler to run and does not write the answer, so CountIf, MaxInFlight,
// Overload, Concurrency, Respond, CORS and DeniedStatus must not be set; [New] has all of them. The
// zero MaxKeysPerClient is no bound, since the store does not know the client's address.
//
// NewStore panics on these, and where httplimit.New does.
func NewStore(s weir.Strategy, cfg httplimit.Config) *Store {
	return &Store{weblimit.NewStore("echolimit", s, cfg)}
}

// AllowContext is Allow with the request at hand: it sets the fields that report the limit, and
// Retry-After on a denial.
func (s *Store) AllowContext(c *echo.Context, identifier string) (bool, error) {
	return s.AllowRequest(c.Response().Header(), c.Request(), identifier)
}
