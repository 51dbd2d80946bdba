package httplimit

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// slot is what one request holds while it is in flight.
type slot struct {
	*middleware
	request *http.Request
	all     bool       // one of MaxInFlight
	held    *weir.Held // a place of Concurrency; nil: none
	ended   func()     // of ServeHeld, in place of all these

	returned bool         // the handler has, without a panic
	parts    atomic.Int32 // in flight: the handler, and a connection that it has hijacked
}

// serveSlot is handle for a request that may take a slot, which it leaves at the end whatever
// panics.
func (h *handler) serveSlot(w http.ResponseWriter, r *http.Request, c *call) {
	s := &slot{middleware: h.middleware, request: r}
	s.parts.Store(1)
	c.slot = s
	defer s.leave(w)
	h.handle(w, r, c)
	s.returned = true
}

// ServeHeld has next serve a request for which something is held, such as a place that [weir.Hold]
// has admitted, and calls release once, at its end: when next has returned or panicked, and has
// closed the connection if it has hijacked that. It is for middlewares that decide by themselves;
// [New]'s has [Config.Concurrency].
func ServeHeld(next http.Handler, w http.ResponseWriter, r *http.Request, release func()) {
	s := &slot{request: r, ended: sync.OnceFunc(release)}
	s.parts.Store(1)
	defer s.leave(w)
	rw, wrapped := newResponseWriter(w)
	rw.more = &writerState{slot: s}
	next.ServeHTTP(wrapped, r)
	s.returned = true
}

// enter takes a slot of MaxInFlight, or ends the request and returns false.
func (s *slot) enter(c *call) bool {
	if s.middleware.all == nil {
		return true
	}
	if s.all = s.middleware.all.TryAcquire(1); !s.all {
		c.end(Busy, http.StatusServiceUnavailable, nil)
	}
	return s.all
}

// leave ends the handler: now, or when an adapter to a framework that sends the body after its
// handlers have returned has sent it.
func (s *slot) leave(w http.ResponseWriter) {
	later, ok := w.(interface{ OnSent(leave func()) bool })
	if !ok || !later.OnSent(s.end) {
		s.end()
	}
}

// end releases the slot. After a panic nobody may close what was hijacked.
func (s *slot) end() {
	if s.all {
		s.middleware.all.Release(1)
	}
	if s.parts.Add(-1) == 0 || !s.returned {
		s.release()
	}
}

// release releases the place.
func (s *slot) release() {
	if s.ended != nil {
		s.ended()
		return
	}
	if s.held == nil {
		return
	}
	ctx := s.request.Context()
	if err := s.held.Release(ctx); err != nil {
		s.log(ctx, &s.throttles.release, slog.LevelError,
			"httplimit: a place in flight was not released, and counts until its lease ends", "",
			slog.String("error", escape(err.Error())))
	}
}

// retryPlace is how long a client waits that has no place: one may be free at any time.
const retryPlace = time.Second

// SetPlaces makes q the state of a limit on requests in flight, of which nobody knows when more of
// it is free: a client that is Denied may try again in a second, and never if its request cannot
// pass.
func (q *Quota) SetPlaces(never bool) {
	q.InFlight = true
	if q.Reset = -1; q.Denied && !never {
		q.Reset = retryPlace
	}
}
