package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/overload"
)

// flushedFor is how long a response may go on after it was flushed and still be measured: a
// longer one is a stream.
const flushedFor = time.Second

// place is the place in Config's Overload that a request holds. The zero place is none.
type place struct {
	held   *overload.Place
	stream *time.Timer     // drops held; nil: the response was not flushed
	writer *responseWriter // nil: Writer has not returned one
}

// flushed notes that a part of the response was sent.
func (p *place) flushed() {
	if p.held != nil && p.stream == nil {
		p.stream = time.AfterFunc(flushedFor, p.held.Drop)
	}
}

// begun notes the fields of a response that begins.
func (p *place) begun(h http.Header) {
	const events = "text/event-stream"
	if p.held == nil || len(h[fieldContentType]) == 0 {
		return
	}
	t := h[fieldContentType][0]
	if len(t) >= len(events) && strings.EqualFold(t[:len(events)], events) {
		p.held.Drop()
	}
}

// drop gives the place back. The time says nothing of the service.
func (p *place) drop() {
	if p.held != nil {
		p.held.Drop()
	}
}

// end ends the request, whose handler has returned with a status, or 0 if that is not known, or has
// panicked. If the client has left, or the answer is a failure, that is all that is known: a quick
// failure does not make the service quick.
func (p *place) end(ctx context.Context, returned bool, status int) {
	if p.held == nil {
		return
	}
	if p.writer != nil && p.writer.status != 0 {
		status = int(p.writer.status)
	}
	switch {
	case ctx.Err() != nil, returned && status >= http.StatusInternalServerError:
		p.held.Abandon()
	case returned:
		p.held.Leave()
	default:
		p.held.Drop()
	}
	if p.stream != nil {
		p.stream.Stop()
	}
}

// admit takes a place of Overload, or ends the request and returns false.
func (p *place) admit(c *call, r *http.Request) bool {
	class := overload.Normal
	if c.guard.cfg.Class != nil {
		class = c.guard.cfg.Class(r)
	}
	ctx := r.Context()
	held, err := c.guard.cfg.Overload.Enter(ctx, string(c.key), class)
	switch {
	case err == nil:
		p.held = held
		return true
	case errors.As(err, &c.full):
		status := http.StatusServiceUnavailable
		if c.full.Reason == overload.ShareUsed {
			status = c.guard.cfg.DeniedStatus
		}
		c.stop(Busy, status, nil)
	case ctx.Err() != nil:
		c.stop(Canceled, http.StatusServiceUnavailable, err)
	default:
		c.guard.log(ctx, &c.guard.throttles.overload, slog.LevelError,
			"httplimit: the overload guard failed", string(c.key),
			slog.String("error", escape(err.Error())))
		if c.guard.cfg.FailOpen {
			return true
		}
		c.stop(Failed, http.StatusServiceUnavailable, err)
	}
	return false
}

// shareName is the name of the limit in the answer to a caller who holds its share.
const shareName = "share"

// setShareFields sets the fields of a style for a caller who holds its share, and may try again
// after wait.
func setShareFields(f *fields, style HeaderStyle, full *overload.FullError, wait time.Duration) {
	most, seconds := strconv.Itoa(full.Most), strconv.FormatInt(ceilSeconds(wait), 10)
	switch style {
	case HeadersDraft:
		f.add(fieldPolicy, `"`+shareName+`";q=`+most+concurrent)
		f.add(fieldRateLimit, `"`+shareName+`";r=0;t=`+seconds)
	case HeadersLegacy:
		for _, name := range styleFields[style] { // of a guard around this one
			delete(f.header, name)
		}
		f.add(fieldLegacyLimit, most)
		f.add(fieldLegacyRemaining, "0")
		f.add(fieldLegacyRetryAfter, seconds)
	case HeadersOriginal:
		f.add(fieldOriginalTotal, strconv.Itoa(full.InFlight))
		f.add(fieldOriginalState, "Deny")
	}
}
