package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
)

// maxAdmittedFields is how many fields an admitted request gets at most: three, of which
// RateLimit-Bypassed may be one.
const maxAdmittedFields = 3

// responseWriter is the http.ResponseWriter that handlers get. It keeps the middleware's fields out
// of informational answers (1xx) and in the final one, and records the status for CountIf.
//
// It embeds the values of the fields, which saves an allocation. Each request allocates one, so
// TestResponseWriterIsSmall bounds its size.
type responseWriter struct {
	http.ResponseWriter
	values [maxAdmittedFields]string // of the fields that the middleware set
	more   *writerState              // shared with other writers until it differs
	status int32                     // 0: no final status yet
	lost   bool                      // the client was gone when the status was written
}

// writerState is shared by the responseWriters of most requests.
type writerState struct {
	style    []string          // the names of the fields that the middleware set; read-only
	watched  *watched          // nil: CountIf is not set
	inFlight *inFlight         // nil: no place of Concurrency or Overload is held
	removed  map[string]string // fields to add to the final answer, after a 1xx
}

// silent is the writerState of a writer without fields.
var silent writerState

func (w *responseWriter) WriteHeader(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if informational && w.status == 0 {
		w.writeInformational(status)
		return
	}
	w.begin(status)
	w.ResponseWriter.WriteHeader(status) // net/http logs a second one
}

// begin records the final status.
func (w *responseWriter) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = int32(status)
	w.lost = w.clientGone()
	if w.more.removed != nil {
		w.release()
	}
	if w.more.inFlight != nil {
		w.more.inFlight.place.begun(w.Header())
	}
}

// clientGone reports whether the client hung up, or the body broke off. It is false without
// CountIf.
func (w *responseWriter) clientGone() bool { return w.more.watched != nil && w.more.watched.gone() }

// writeInformational writes a 1xx answer without the middleware's fields. It restores them at once,
// and release restores them again before the final answer, since handlers such as
// httputil.ReverseProxy clear the header in between.
func (w *responseWriter) writeInformational(status int) {
	h := w.Header()
	if w.more.removed == nil {
		w.more = &writerState{w.more.style, w.more.watched, w.more.inFlight, w.own(h)}
	}
	all := make(map[string][]string, len(w.more.removed))
	for name, value := range w.more.removed {
		all[name] = h[name]
		others := slices.Clone(h[name])
		h[name] = slices.DeleteFunc(others, func(v string) bool { return v == value })
		if len(h[name]) == 0 {
			delete(h, name)
		}
	}
	// net/http sends a copy of a header with this key by HTTP/2, and may read it after WriteHeader has
	// returned, if the client has left.
	const copied = "Content-Length"
	_, has := h[copied]
	if !has {
		h[copied] = nil
	}
	w.ResponseWriter.WriteHeader(status)
	if !has {
		delete(h, copied)
	}
	for name, values := range all {
		if values != nil {
			h[name] = values
		}
	}
}

// own returns the fields in h that the middleware has set.
func (w *responseWriter) own(h http.Header) map[string]string {
	own := make(map[string]string, len(w.more.style))
	set := func(value string) bool { return slices.Contains(w.values[:], value) }
	for _, name := range w.more.style {
		if i := slices.IndexFunc(h[name], set); i >= 0 {
			own[name] = h[name][i]
		}
	}
	return own
}

// release restores the fields that were removed since the last 1xx.
func (w *responseWriter) release() {
	h := w.Header()
	for name, value := range w.more.removed {
		if !slices.Contains(h[name], value) {
			h[name] = append([]string{value}, h[name]...)
		}
	}
	w.more.removed = nil
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// WriteString avoids the copy to a []byte if the underlying writer does.
func (w *responseWriter) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom keeps net/http's sendfile path: io.Copy uses the ReadFrom of the underlying writer.
func (w *responseWriter) ReadFrom(src io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, src)
}

// Unwrap is used by http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// watch makes w and the returned request record the facts that counts needs.
func (w *responseWriter) watch(r *http.Request) *http.Request {
	c := &watched{ctx: r.Context()}
	w.more = &writerState{style: w.more.style, watched: c, inFlight: w.more.inFlight}
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	c.body.ReadCloser = r.Body
	out := *r
	out.Body = &c.body
	return &out
}

// hijack hands the connection over. For CountIf it watches the bytes that the handler writes there:
// the answer to an upgrade is a 101, but may as well be a 401. A place of Concurrency is held until
// the connection is closed, and one of Overload is dropped.
func (w *responseWriter) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	counting, holds := w.more.watched != nil && w.status == 0, false
	if w.more.inFlight != nil && err == nil {
		w.more.inFlight.place.drop()
		holds = w.more.inFlight.held != nil
	}
	if err != nil || !counting && !holds {
		return conn, rw, err
	}
	c := &hijackedConn{Conn: conn}
	if holds {
		c.inFlight = w.more.inFlight
		c.inFlight.parts.Add(1)
	}
	if counting {
		w.more.watched.hijacked = c
		if rw != nil {
			rw.Writer.Reset(c) // nothing is in it yet
		}
	}
	if half, ok := conn.(closeWriter); ok {
		return &halfConn{c, half}, rw, nil
	}
	return c, rw, nil
}

// flushWriter is a responseWriter on an http.Flusher.
type flushWriter struct{ responseWriter }

func (w *flushWriter) Flush() { _ = w.FlushError() }

// FlushError returns the error of the underlying writer; http.ResponseController prefers it to
// Flush.
func (w *flushWriter) FlushError() error {
	w.begin(http.StatusOK) // a flush sends the header
	if w.more.inFlight != nil {
		w.more.inFlight.place.flushed()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// hijackWriter is a flushWriter on an http.Hijacker, as the writers of HTTP/1 are.
type hijackWriter struct{ flushWriter }

func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// pushWriter is a flushWriter on an http.Pusher, as the writers of HTTP/2 are.
type pushWriter struct{ flushWriter }

func (w *pushWriter) Push(target string, opts *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, opts)
}

// onlyHijackWriter is a responseWriter on an http.Hijacker that cannot flush.
type onlyHijackWriter struct{ responseWriter }

func (w *onlyHijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// newResponseWriter returns a responseWriter on w, and the same writer with the optional interfaces
// of w: handlers find them by type assertion, and must not find one that does not work. The writer
// has Flush and Hijack also if only http.ResponseController finds them, below w, so that no
// connection is handed over and no stream begins past the responseWriter.
func newResponseWriter(w http.ResponseWriter) (*responseWriter, http.ResponseWriter) {
	canFlush, canHijack := reaches[http.Flusher](w), reaches[http.Hijacker](w)
	switch {
	case canFlush && canHijack:
		h := &hijackWriter{flushWriter{responseWriter{ResponseWriter: w}}}
		return &h.responseWriter, h
	case canFlush:
		if _, canPush := w.(http.Pusher); canPush {
			p := &pushWriter{flushWriter{responseWriter{ResponseWriter: w}}}
			return &p.responseWriter, p
		}
		f := &flushWriter{responseWriter{ResponseWriter: w}}
		return &f.responseWriter, f
	case canHijack:
		h := &onlyHijackWriter{responseWriter{ResponseWriter: w}}
		return &h.responseWriter, h
	}
	rw := &responseWriter{ResponseWriter: w}
	return rw, rw
}

// reaches reports whether http.ResponseController finds an I: w, or a writer below it.
func reaches[I any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(I); ok {
			return true
		}
		under, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = under.Unwrap()
	}
}
