package httplimit

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// inFlight is what one request holds while it is in flight.
type inFlight struct {
	*middleware
	request *http.Request
	all     bool       // one of MaxInFlight
	held    *weir.Held // a place of Concurrency; nil: none
	ended   func()     // of ServeHeld, in place of all these

	returned bool         // the handler has, without a panic
	parts    atomic.Int32 // in flight: the handler, and a connection that it has hijacked
}

// serveInFlight is handle for a request that may hold a place, which it gives back at the end,
// whatever panics.
func (h *handler) serveInFlight(w http.ResponseWriter, r *http.Request, c *call) {
	f := &inFlight{middleware: h.middleware, request: r}
	f.parts.Store(1)
	c.inFlight = f
	defer f.leave(w)
	h.handle(w, r, c)
	f.returned = true
}

// ServeHeld has next serve a request for which something is held, such as a place that [weir.Hold]
// has admitted, and calls release once, at its end: when next has returned or panicked, and has
// closed the connection if it has hijacked that. It is for middlewares that decide by themselves;
// [New]'s has [Config.Concurrency].
func ServeHeld(next http.Handler, w http.ResponseWriter, r *http.Request, release func()) {
	f := &inFlight{request: r, ended: sync.OnceFunc(release)}
	f.parts.Store(1)
	defer f.leave(w)
	rw, wrapped := newResponseWriter(w)
	rw.more = &writerState{inFlight: f}
	next.ServeHTTP(wrapped, r)
	f.returned = true
}

// enter takes a place of MaxInFlight, or ends the request and returns false.
func (f *inFlight) enter(c *call) bool {
	if f.middleware.all == nil {
		return true
	}
	if f.all = f.middleware.all.TryAcquire(1); !f.all {
		c.end(Busy, http.StatusServiceUnavailable, nil)
	}
	return f.all
}

// leave ends the handler: now, or when an adapter to a framework that sends the body after its
// handlers have returned has sent it.
func (f *inFlight) leave(w http.ResponseWriter) {
	later, ok := w.(interface{ OnSent(leave func()) bool })
	if !ok || !later.OnSent(f.end) {
		f.end()
	}
}

// end releases the place of MaxInFlight. After a panic nobody may close what was hijacked.
func (f *inFlight) end() {
	if f.all {
		f.middleware.all.Release(1)
	}
	if f.parts.Add(-1) == 0 || !f.returned {
		f.release()
	}
}

// release releases the place.
func (f *inFlight) release() {
	if f.ended != nil {
		f.ended()
		return
	}
	if f.held == nil {
		return
	}
	ctx := f.request.Context()
	if err := f.held.Release(ctx); err != nil {
		f.log(ctx, &f.throttles.release, slog.LevelError,
			"httplimit: a place in flight was not released, and counts until its lease ends", "",
			slog.String("error", escape(err.Error())))
	}
}
