package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
)

// record holds the facts about one request. Only the goroutine that serves it writes to it, except
// for fault.
//
// It is the context of its request, in place of one around it.
type record struct {
	context.Context
	decision httplimit.Decision
	decided  bool
	path     string         // as the upstream gets it, escaped; set by rewrite
	targets  routes.Targets // set by read
	fault    atomic.Int32   // the status of a body that failed, or 0; set by what reads it
}

type recordKey struct{}

// Value implements context.Context.
func (rec *record) Value(key any) any {
	if key == (recordKey{}) {
		return rec
	}
	return rec.Context.Value(key)
}

// recordOf returns the record of the request that ctx belongs to.
func recordOf(ctx context.Context) *record {
	rec, _ := ctx.Value(recordKey{}).(*record)
	return rec
}

// maxLogged bounds the path in a line of a log, in bytes: the line of a denied request costs more
// than its decision.
const maxLogged = 1 << 10

// logged returns a path as a line of a log shows it.
func logged(path string) string {
	if len(path) <= maxLogged {
		return screen.Printable(path)
	}
	return screen.Printable(path[:maxLogged]) + "…"
}

// writer records status and size, and keeps the optional interfaces that ReverseProxy and the
// middleware use.
type writer struct {
	http.ResponseWriter
	status   int // 0: none
	bytes    int64
	stopping *atomic.Bool  // set: the connection ends after the response
	send     time.Duration // over HTTP/2, in which the client must take a piece; 0: no bound
}

func (w *writer) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	defer w.hurry()()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// hurry bounds the time of what follows by send over HTTP/2, whose flow control can stop a response
// while the connection is read. The returned function ends that: the deadline of a stream also ends
// one without data.
func (w *writer) hurry() (end func()) {
	if w.send == 0 {
		return func() {}
	}
	c := http.NewResponseController(w.ResponseWriter)
	_ = c.SetWriteDeadline(time.Now().Add(w.send)) // only writers of tests have no deadlines
	return func() { _ = c.SetWriteDeadline(time.Time{}) }
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.begin(http.StatusOK)
	defer w.hurry()()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Flush has no error result
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap is used by http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin notes the status, unless one was noted or this one is informational.
func (w *writer) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	if status != http.StatusSwitchingProtocols && w.stopping.Load() {
		w.Header().Set("Connection", "close") // net/http sends GOAWAY for it over HTTP/2
	}
}
