// Package weblimit runs the middlewares of package httplimit inside web frameworks whose handlers
// are no http.Handlers. It is for adapters, such as those in contrib/echo, contrib/gin and
// contrib/fiber: a program uses these.
package weblimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/weirgo/weir/httplimit"
)

// Guard is a middleware inside a framework. C is what the adapter needs to know of a request, such
// as the framework's context. A Guard is safe for concurrent use.
type Guard[C any] struct{ handler http.Handler }

// New returns guard, a middleware such as [httplimit.New] or rules.Middleware makes, as a Guard. It
// panics if guard is nil; adapter is the package to blame.
func New[C any](adapter string, guard func(http.Handler) http.Handler) Guard[C] {
	if guard == nil {
		panic(adapter + ": no middleware")
	}
	return Guard[C]{guard(http.HandlerFunc(serve[C]))}
}

// Next runs the handlers that the framework has next. It returns the status that they have set, or
// that the framework will send for err after all middleware has run: CountIf sees it. 0: they have
// written it to w. w and r are the guard's; the context of r may carry values.
type Next func(w http.ResponseWriter, r *http.Request) (status int, err error)

// Run passes a request through the guard, which either calls next once or answers on w. The
// request's Pattern becomes the method and route; none if route is empty. Run reports whether next
// was called, and returns its error or that of an [OnDenied].
//
// A framework that sends the body after its handlers have returned gives a w with a method
// OnSent(func()) bool. The guard calls it at the end of an admitted request: if it returns true,
// the request is in flight until it calls the function.
func (g Guard[C]) Run(
	c C, w http.ResponseWriter, r *http.Request, route string, next Next,
) (bool, error) {
	call := &call[C]{of: c, next: next, writer: writer{ResponseWriter: w}}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, call))
	r.Pattern = ""
	if route != "" {
		r.Pattern = r.Method + " " + route
	}
	g.handler.ServeHTTP(&call.writer, r)
	return call.passed, call.err
}

// Of returns the C of a request that a [Guard] sees, or false for another one.
func Of[C any](r *http.Request) (c C, ok bool) {
	call, ok := r.Context().Value(callKey{}).(*call[C])
	if !ok {
		return c, false
	}
	return call.of, true
}

// OnDenied returns a Respond for httplimit.Config that leaves the answer to deny. The fields are
// set, and deny writes the answer or returns an error for the framework's error handler, which
// [Guard.Run] returns.
func OnDenied[C any](
	deny func(c C, d httplimit.Decision) error,
) func(http.ResponseWriter, *http.Request, httplimit.Decision) {
	return func(_ http.ResponseWriter, r *http.Request, d httplimit.Decision) {
		call, ok := r.Context().Value(callKey{}).(*call[C])
		if !ok {
			panic("weblimit: OnDenied: the guard runs outside of its adapter")
		}
		call.err = deny(call.of, d)
	}
}

// call is one pass of a request through a Guard.
type call[C any] struct {
	of     C
	next   Next
	writer writer
	passed bool
	err    error
}

type callKey struct{}

// serve is the handler behind every guard.
func serve[C any](w http.ResponseWriter, r *http.Request) {
	call := r.Context().Value(callKey{}).(*call[C])
	call.passed = true
	var status int
	if status, call.err = call.next(w, r); status != 0 {
		call.writer.muted = true // the guard alone is to see it
		w.WriteHeader(status)
		call.writer.muted = false
	}
}

// writer is the framework's response below the guard's. It does not pass on the status written
// while muted.
type writer struct {
	http.ResponseWriter
	muted bool
}

func (w *writer) WriteHeader(status int) {
	if !w.muted {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap serves http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// The other methods are found by type assertion. Frameworks' responses have all of them.

func (w *writer) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *writer) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, src) }

// OnSent is found by package httplimit; see Run.
func (w *writer) OnSent(leave func()) bool {
	later, ok := w.ResponseWriter.(interface{ OnSent(leave func()) bool })
	return ok && later.OnSent(leave)
}
