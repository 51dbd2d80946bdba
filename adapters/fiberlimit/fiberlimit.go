// Package fiberlimit limits requests to a Fiber v3 app by the policies of package httplimit, in
// either of two ways:
//
//	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
//	app.Use(fiberlimit.New(httplimit.NewGuard(perClient, httplimit.Config{
//		Extractor: httplimit.RemoteAddr(),
//	})))
//
// [New] makes a handler with everything that httplimit has. [Handler] makes a LimiterMiddleware for
// Fiber's own limiter, for programs that use its Config. There is no fiber.Storage: Fiber reads
// and writes counts in two steps, and other processes may count in between.
package fiberlimit

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
)

// New returns guard, as [httplimit.NewGuard] or rules.NewGuard makes one, as a handler
// for Use, a group or a route. A request that guard refuses is answered by guard, and the handlers
// after it do not run; with [OnDenied] Fiber's error handler answers. Unlike the adaptor that comes
// with Fiber, it runs them inside of guard, so that CountIf sees the status, MaxInFlight the end of
// the request, and the Extractor every line of a header that was sent twice. A request whose body
// is a stream, as of SendStreamWriter, is in flight until that is sent.
//
// Guard sees a copy of the request's head, without the body. Its Pattern is the method and the path
// of the route, as in "GET /users/:id", so that [httplimit.Pattern] keys by route. For a guard
// given to Use or to a group it is the first route after it that matches, whose handlers will run
// unless a handler in between answers; custom constraints of routes are taken as met. Requests that
// match no route have none, and that extractor refuses them with 400. [Context] returns the
// fiber.Ctx in the functions of the Config. The address of the client is the business of the
// Extractor; Fiber's ProxyHeader has no effect on it. In the handlers after it,
// httplimit.IsBypassed takes c.Context().
//
// A request with an invalid URI is answered with 400. Fiber does not notice that a client hangs up.
// New panics if guard is nil. The handler is safe for concurrent use.
//
// [httplimit.NewGuard]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#NewGuard
// [httplimit.Pattern]: https://pkg.go.dev/github.com/weirgo/weir/httplimit#Pattern
func New(guard *httplimit.Guard) fiber.Handler {
	g := weblimit.New[*call]("fiberlimit", guard)
	var routes routes
	return func(c fiber.Ctx) error {
		call := &call{ctx: c, header: make(http.Header)}
		r, err := call.request()
		if err != nil {
			return fiber.ErrBadRequest
		}
		pass := g.Begin(call, r, routes.of(c))
		returned := false
		defer func() {
			if !returned { // else a stream that is still to be sent ends the request
				pass.Abort()
			}
		}()
		if !pass.Passes() {
			err := pass.Refuse(call)
			call.send() // a Respond may have answered by the fiber.Ctx alone
			return err
		}
		pass.SetFields(call.header)
		call.send()
		c.SetContext(pass.Context()) // it may carry a value of the guard's
		err = c.Next()
		returned = true
		call.end(pass.Ticket, status(c, err))
		return err
	}
}

// Context returns the fiber.Ctx of a request that a guard made by [New] sees: in an Extractor, for
// instance, the user that an authenticating handler has set. It returns nil for other requests.
func Context(r *http.Request) fiber.Ctx {
	call, ok := weblimit.Of[*call](r)
	if !ok {
		return nil
	}
	return call.ctx
}

// OnDenied returns a Respond for the Config of a guard: it gives each refused request to deny,
// whose error Fiber's error handler gets. The fields are set by then. The status that the guard
// would have answered with is in d.Status.
func OnDenied(
	deny func(c fiber.Ctx, d httplimit.Decision) error,
) func(http.ResponseWriter, *http.Request, httplimit.Decision) {
	return weblimit.OnDenied(func(call *call, d httplimit.Decision) error {
		call.send()
		return deny(call.ctx, d)
	})
}

// call is one pass of a request through a guard, and the http.ResponseWriter of a refusal.
type call struct {
	ctx    fiber.Ctx
	header http.Header // the guard's fields, until they are sent
	sent   bool
}

// request copies the head of the request: Fiber uses the memory of the original again, while the
// functions of a Config may keep what they were given. Fasthttp's own conversion reads the body,
// and keeps the last line only of a header that was sent twice.
func (call *call) request() (*http.Request, error) {
	from := call.ctx.RequestCtx()
	uri := string(from.RequestURI())
	parsed, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: call.ctx.Method(), URL: parsed, RequestURI: uri,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody,
		Host: string(from.Host()), RemoteAddr: from.RemoteAddr().String(), TLS: from.TLSConnectionState(),
	}
	for name, value := range from.Request.Header.All() {
		r.Header.Add(string(name), string(value))
	}
	r.Header.Del("Host") // it is in r.Host
	return r.WithContext(call.ctx.Context()), nil
}

// status returns the status that the handlers have set, or that Fiber's default error handler will
// set for err.
func status(c fiber.Ctx, err error) int {
	var failure *fiber.Error
	switch {
	case err == nil:
		return c.Response().StatusCode()
	case errors.As(err, &failure):
		return failure.Code
	}
	return fiber.StatusInternalServerError
}

// send adds the guard's fields to the response.
func (call *call) send() {
	if call.sent {
		return
	}
	call.sent = true
	for name, values := range call.header {
		for _, value := range values {
			call.ctx.Response().Header.Add(name, value)
		}
	}
}

func (call *call) Header() http.Header { return call.header }

// WriteHeader sets the status of a refusal.
func (call *call) WriteHeader(status int) {
	if !call.sent {
		call.send()
		call.ctx.Status(status)
	}
}

// Write writes the body of a refusal.
func (call *call) Write(p []byte) (int, error) {
	call.WriteHeader(fiber.StatusOK)
	return call.ctx.Write(p)
}

// end ends the request, when the body has been sent if that is still to come. Fasthttp closes the
// user values of a request then.
func (call *call) end(t httplimit.Ticket, status int) {
	c := call.ctx.RequestCtx()
	if !c.Response.IsBodyStream() && !c.Hijacked() {
		t.End(status)
		return
	}
	c.SetUserValue(call, closer(func() { t.End(status) }))
}

type closer func()

func (f closer) Close() error {
	f()
	return nil
}
