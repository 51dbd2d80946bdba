// Package echolimit limits requests to an Echo v5 server by the policies of package httplimit, in
// either of two ways:
//
//	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
//	e.Use(echolimit.New(httplimit.NewGuard(perClient, httplimit.Config{
//		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
//	})))
//
// [New] makes a middleware with everything that httplimit has. [NewStore] makes a store for Echo's
// own rate limiter, for programs that use its Skipper, IdentifierExtractor and DenyHandler.
//
// For Echo v4 there is github.com/weirgo/weir/adapters/echov4limit, a module of its own, so that a
// program requires only the version of Echo that it uses.
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
)

// New returns guard, as [httplimit.NewGuard] or rules.NewGuard makes one, as a middleware for Use.
// A request that guard refuses is answered by guard, and the handlers after it do not run; with
// [OnDenied] Echo's error handler answers.
//
// The request's Pattern is the method and the matched route, as in "GET /users/:id", so that
// [httplimit.Pattern] keys by route. Requests that match no route have none, and that extractor
// refuses them with 400: give a guard that uses it to a group or a route rather than to the whole
// server. [Context] returns the echo.Context in the functions of the Config.
//
// CountIf sees the status that the handlers have written, or that Echo's default error handler will
// write for the error that they returned. The address of the client is the business of the
// Extractor; Echo's IPExtractor has no effect on it. New panics if guard is nil. The middleware is
// safe for concurrent use.
//
// [httplimit.NewGuard]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#NewGuard
// [httplimit.Pattern]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#Pattern
func New(guard *httplimit.Guard) echo.MiddlewareFunc {
	g := weblimit.New[*echo.Context]("echolimit", guard)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			outer := c.Response()
			handle := func(w http.ResponseWriter, r *http.Request) (int, error) {
				c.SetRequest(r)
				c.SetResponse(w)
				err := next(c)
				c.SetResponse(outer)
				_, status := echo.ResolveResponseStatus(outer, err)
				return status, err
			}
			_, err := g.Run(c, outer, c.Request(), c.Path(), handle)
			return err
		}
	}
}

// Context returns the echo.Context of a request that a guard made by [New] sees: in an Extractor,
// for instance, the user that an authenticating middleware has set. It returns nil for other
// requests.
func Context(r *http.Request) *echo.Context {
	c, _ := weblimit.Of[*echo.Context](r)
	return c
}

// OnDenied returns a Respond for the Config of a guard: it gives each refused request to deny,
// whose error Echo's error handler gets. The fields are set by then. The status that the guard
// would have answered with is in d.Status.
func OnDenied(
	deny func(c *echo.Context, d httplimit.Decision) error,
) func(http.ResponseWriter, *http.Request, httplimit.Decision) {
	return weblimit.OnDenied(deny)
}
