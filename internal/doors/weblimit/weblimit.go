// Package weblimit runs guards of package httplimit inside web frameworks whose handlers are no
// http.Handlers, such as those that contrib has adapters for.
package weblimit

import (
	"context"
	"net/http"

	"github.com/weirgo/weir/httplimit"
)

// Guard is a guard inside a framework. C is what the adapter needs to know of a request, such as
// the framework's context. A Guard is safe for concurrent use.
type Guard[C any] struct{ guard *httplimit.Guard }

// New returns guard as a Guard. It panics if guard is nil; adapter is the package to blame.
func New[C any](adapter string, guard *httplimit.Guard) Guard[C] {
	if guard == nil {
		panic(adapter + ": no guard")
	}
	return Guard[C]{guard}
}

// Call is one pass of a request through a Guard.
type Call[C any] struct {
	httplimit.Ticket
	of  C
	err error
}

type callKey struct{}

// Begin decides on r. The request's Pattern becomes the method and route; none if route is empty.
func (g Guard[C]) Begin(of C, r *http.Request, route string) *Call[C] {
	call := &Call[C]{of: of}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, call))
	r.Pattern = ""
	if route != "" {
		r.Pattern = r.Method + " " + route
	}
	call.Ticket = g.guard.Begin(r)
	return call
}

// Refuse answers a request that does not pass on w, and returns the error of an [OnDenied].
func (call *Call[C]) Refuse(w http.ResponseWriter) error {
	call.Answer(w)
	call.End(0)
	return call.err
}

// Next runs the handlers that the framework has next. It returns the status that they have set, or
// that the framework will send for err after all middleware has run: CountIf sees it. 0: they have
// written it to w. w and r are the guard's; the context of r may carry values.
type Next func(w http.ResponseWriter, r *http.Request) (status int, err error)

// Run passes a request through the guard, which either calls next once or answers on w. It reports
// whether next was called, and returns its error or that of an [OnDenied].
func (g Guard[C]) Run(
	of C, w http.ResponseWriter, r *http.Request, route string, next Next,
) (passed bool, err error) {
	call := g.Begin(of, r, route)
	defer call.Abort()
	if !call.Passes() {
		return false, call.Refuse(w)
	}
	status, err := next(call.Writer(w))
	call.End(status)
	return true, err
}

// Of returns the C of a request that a [Guard] sees, or false for another one.
func Of[C any](r *http.Request) (c C, ok bool) {
	call, ok := r.Context().Value(callKey{}).(*Call[C])
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
		call, ok := r.Context().Value(callKey{}).(*Call[C])
		if !ok {
			panic("weblimit: OnDenied: the guard runs outside of its adapter")
		}
		call.err = deny(call.of, d)
	}
}
