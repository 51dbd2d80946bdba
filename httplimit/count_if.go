package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// serveAndRefund runs the handler, and gives back what was taken if CountIf says that its status does not count. If the
// handler panics nothing is given back: a panic is no way to dodge the count.
func (h *handler) serveAndRefund(w http.ResponseWriter, r *http.Request, c *call) {
	sw := &statusWriter{ResponseWriter: w}
	h.next.ServeHTTP(sw.keepInterfaces(), r)
	if !h.CountIf(sw.result()) {
		h.giveBack(r.Context(), c, len(c.asked))
	}
}

// statusWriter remembers the status that went through it.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: none yet
}

// result returns the status the client gets: 200 if the handler wrote nothing.
func (w *statusWriter) result() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *statusWriter) WriteHeader(status int) {
	// Other 1xx statuses are informational, and the one that counts follows.
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.written()
	return w.ResponseWriter.Write(p)
}

// ReadFrom keeps net/http's sendfile path: io.Copy asks the inner writer in turn.
func (w *statusWriter) ReadFrom(src io.Reader) (int64, error) {
	w.written()
	return io.Copy(w.ResponseWriter, src)
}

// Unwrap lets http.ResponseController through.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) written() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// keepInterfaces returns w with the Flush and Hijack methods of the writer within, if it has them: handlers ask for them
// by type assertion, and one that is not there must not seem to be.
func (w *statusWriter) keepInterfaces() http.ResponseWriter {
	flusher, canFlush := w.ResponseWriter.(http.Flusher)
	hijacker, canHijack := w.ResponseWriter.(http.Hijacker)
	switch {
	case canFlush && canHijack:
		return struct {
			*statusWriter
			flushing
			hijacking
		}{w, flushing{w, flusher}, hijacking{w, hijacker}}
	case canFlush:
		return struct {
			*statusWriter
			flushing
		}{w, flushing{w, flusher}}
	case canHijack:
		return struct {
			*statusWriter
			hijacking
		}{w, hijacking{w, hijacker}}
	}
	return w
}

type flushing struct {
	w       *statusWriter
	flusher http.Flusher
}

func (f flushing) Flush() {
	f.w.written() // a flush sends the header
	f.flusher.Flush()
}

type hijacking struct {
	w        *statusWriter
	hijacker http.Hijacker
}

func (h hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.hijacker.Hijack()
	if err == nil && h.w.status == 0 {
		h.w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
