package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// inFlight has the places that one request holds while it is in flight.
type inFlight struct {
	guard   *Guard
	request *http.Request
	all     bool  // one of MaxInFlight
	held    holds // places of limits; nil: none
	place   place // of Overload

	parts atomic.Int32 // in flight: the handler, and a connection that it has hijacked
}

// holds are the places that a request holds.
type holds interface {
	Release(ctx context.Context) error
}

// places are several.
type places []*weir.Held

// Release releases all of them.
func (p places) Release(ctx context.Context) (err error) {
	for _, held := range p {
		err = errors.Join(err, held.Release(ctx))
	}
	return err
}

func newInFlight(g *Guard, r *http.Request) *inFlight {
	f := &inFlight{guard: g, request: r}
	f.parts.Store(1)
	return f
}

// enter takes a place of MaxInFlight and one of Overload, or ends the request and returns false.
func (f *inFlight) enter(c *call) bool {
	if f.guard.all != nil {
		f.all = f.guard.all.TryAcquire(1)
		if !f.all {
			c.stop(Busy, http.StatusServiceUnavailable, nil)
			return false
		}
	}
	return f.guard.cfg.Overload == nil || f.place.admit(c, f.request)
}

// holds reports whether a Writer is to watch the request.
func (f *inFlight) holds() bool { return f.held != nil || f.place.held != nil }

// takeHeld adds to held the places that limits hold.
func takeHeld(held holds, limits limits.Attempts) holds {
	for i := range limits {
		place := limits[i].TakeHeld()
		if place == nil {
			continue
		}
		switch all := held.(type) {
		case nil:
			held = place
		case *weir.Held:
			held = places{all, place}
		case places:
			all = append(all, place)
			held = all
		}
	}
	return held
}

// end ends the handler, which has returned with a status, if that is known, or panicked. After a
// panic nobody may close a hijacked connection.
func (f *inFlight) end(returned bool, status int) {
	if f.all {
		f.guard.all.Release(1)
	}
	f.place.end(f.request.Context(), returned, status)
	if f.parts.Add(-1) == 0 || !returned {
		f.release()
	}
}

// release releases the places.
func (f *inFlight) release() {
	if f.held == nil {
		return
	}
	ctx := f.request.Context()
	if err := f.held.Release(ctx); err != nil {
		f.guard.log(ctx, &f.guard.throttles.release, slog.LevelError,
			"httplimit: a place in flight was not released, and counts until its lease ends", "",
			slog.String("error", escape(err.Error())))
	}
}
