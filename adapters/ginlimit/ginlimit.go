// Package ginlimit limits requests to a Gin engine by the policies of package httplimit.
//
//	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
//	guard := httplimit.NewGuard(perClient, httplimit.Config{
//		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
//	})
//	api := engine.Group("/api", ginlimit.New(guard))
package ginlimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
)

// New returns guard, as [httplimit.NewGuard] or rules.NewGuard makes one, as a handler
// for Use and Group. A request that guard refuses is answered by guard, or as [OnDenied] says, and
// the handlers after it do not run.
//
// The request's Pattern is the method and the matched route, as in "GET /users/:id", so that
// [httplimit.Pattern] keys by route. Requests that match no route have none, and that extractor
// refuses them with 400: give a guard that uses it to a group or a route rather than to the engine.
// [Context] returns the gin.Context in the functions of the Config.
//
// CountIf sees the status that the handlers set, when the answer begins. The address of the client
// is the business of the Extractor; Gin's SetTrustedProxies has no effect on it. New panics if
// guard is nil. The handler is safe for concurrent use.
//
// [httplimit.NewGuard]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#NewGuard
// [httplimit.Pattern]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#Pattern
func New(guard *httplimit.Guard) gin.HandlerFunc {
	g := weblimit.New[*gin.Context]("ginlimit", guard)
	return func(c *gin.Context) {
		outer := c.Writer
		handle := func(w http.ResponseWriter, r *http.Request) (int, error) {
			c.Request = r
			defer func() { c.Writer = outer }() // also on a panic: Recovery must not write to the guard
			c.Writer = &writer{outer, w}
			c.Next()
			return outer.Status(), nil
		}
		if passed, _ := g.Run(c, outer, c.Request, c.FullPath(), handle); !passed {
			c.Abort() // or Gin would go on to the next handler
		}
	}
}

// Context returns the gin.Context of a request that a guard made by [New] sees: in an Extractor,
// for instance, the user that an authenticating handler has set. It returns nil for other requests.
func Context(r *http.Request) *gin.Context {
	c, _ := weblimit.Of[*gin.Context](r)
	return c
}

// OnDenied returns a Respond for the Config of a guard: it gives each refused request to deny. The
// fields are set by then. An error of deny is added to c.Errors, with d.Status as the status of the
// answer, for a handler that answers for all errors.
func OnDenied(
	deny func(c *gin.Context, d httplimit.Decision) error,
) func(http.ResponseWriter, *http.Request, httplimit.Decision) {
	return weblimit.OnDenied(func(c *gin.Context, d httplimit.Decision) error {
		err := deny(c, d)
		if err != nil {
			c.Status(d.Status)
			_ = c.Error(err)
		}
		return err
	})
}

// writer passes the status to the guard, for CountIf, as soon as the answer begins.
type writer struct {
	gin.ResponseWriter
	guard http.ResponseWriter
}

func (w *writer) begin() {
	if !w.Written() {
		w.guard.WriteHeader(w.Status())
	}
}

// WriteHeaderNow implements gin.ResponseWriter.
func (w *writer) WriteHeaderNow() {
	w.begin()
	w.ResponseWriter.WriteHeaderNow()
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	return w.ResponseWriter.WriteString(s)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.begin()
	_ = http.NewResponseController(w.guard).Flush() // the guard tells a stream by it
}

// Hijack implements http.Hijacker. The guard watches the connection: for CountIf, and until it is
// closed for the place in flight.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.guard).Hijack()
}

// Unwrap serves http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
