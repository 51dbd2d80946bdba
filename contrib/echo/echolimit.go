// Package echolimit limits requests to an Echo v5 server by the policies of package httplimit, in
// either of two ways:
//
//	e.Use(echolimit.New(httplimit.New(limiter.SlidingWindow(), httplimit.Config{
//		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
//		Limit:     100,
//		Duration:  time.Minute,
//	})))
//
// [New] makes a middleware with everything that httplimit has. [NewStore] makes a store for Echo's
// own rate limiter, for programs that use its Skipper, IdentifierExtractor and DenyHandler.
//
// For Echo v4 there is github.com/weirgo/weir/contrib/echov4, a module of its own, so that a
// program requires only the version of Echo that it uses.
package echolimit

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"
)

// New returns guard, a middleware such as [httplimit.New] or rules.Middleware makes, as one for
// Use. A request that guard refuses is answered by guard, and the handlers after it do not run.
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
// [httplimit.New]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#New
// [httplimit.Pattern]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#Pattern
func New(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	if guard == nil {
		panic("echolimit: no middleware")
	}
	h := guard(http.HandlerFunc(serve))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			call := &call{echoContext: c, next: next}
			call.writer.ResponseWriter = c.Response()
			r := c.Request().WithContext(context.WithValue(c.Request().Context(), callKey{}, call))
			r.Pattern = ""
			if route := c.Path(); route != "" {
				r.Pattern = r.Method + " " + route
			}
			h.ServeHTTP(&call.writer, r)
			return call.err
		}
	}
}

// Context returns the echo.Context of a request that a guard made by [New] sees: in an Extractor,
// for instance, the user that an authenticating middleware has set. It returns nil for other
// requests.
func Context(r *http.Request) *echo.Context {
	call, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return nil
	}
	return call.echoContext
}

// call is one pass of a request through a guard.
type call struct {
	echoContext *echo.Context
	next        echo.HandlerFunc
	writer      writer
	err         error // of next
}

type callKey struct{}

// serve is the handler behind every guard: it runs the handlers that Echo has next.
func serve(w http.ResponseWriter, r *http.Request) {
	call := r.Context().Value(callKey{}).(*call)
	c := call.echoContext
	outer := c.Response()
	c.SetRequest(r) // its context may carry a value of the guard's
	c.SetResponse(w)
	call.err = call.next(c)
	c.SetResponse(outer)
	// The error handler runs after all middleware. Report the status that it will write to the
	// guard only.
	_, status := echo.ResolveResponseStatus(outer, call.err)
	call.writer.muted = true
	w.WriteHeader(status)
	call.writer.muted = false
}

// writer is Echo's response below the guard's. It does not pass on the status written while muted.
type writer struct {
	http.ResponseWriter
	muted bool
}

func (w *writer) WriteHeader(status int) {
	if !w.muted {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap serves http.ResponseController and echo.UnwrapResponse.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush and Hijack are found by type assertion; Echo's response has both.

func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
