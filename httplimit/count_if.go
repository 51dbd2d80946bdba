package httplimit

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// counts reports whether a request counts, by countIf, that was answered with status or, if that is
// 0, with the status that its Writer w has seen; w is nil if there is none.
//
// A status written after the client hung up is no evidence: a client that hangs up as soon as its
// attempt has reached the server makes the handler write some other status, or none. Such a request
// counts, and so does one whose body broke off, since a server may act on a part of the body. If
// the handler wrote nothing, net/http sends 200. A handler that hijacked the connection writes the
// status line itself; without one the request counts.
func counts(w *responseWriter, r *http.Request, status int, countIf func(int) bool) bool {
	if w == nil {
		return status == 0 || r.Context().Err() != nil || countIf(status)
	}
	if conn := w.more.watched.hijacked; conn != nil {
		status := int(conn.status.Load())
		return status <= 0 || countIf(status)
	}
	if w.lost || w.status == 0 && w.clientGone() {
		return true
	}
	return countIf(cmp.Or(int(w.status), status, http.StatusOK))
}

// watched has the facts that CountIf watches besides the status.
type watched struct {
	ctx  context.Context // of the request
	body requestBody     // without a ReadCloser if the request has no body

	hijacked *hijackedConn // nil: the handler did not hijack the connection
}

// gone reports whether the client hung up, or the body broke off.
func (c *watched) gone() bool { return c.ctx.Err() != nil || c.body.failed.Load() }

// requestBody records that a body broke off. Handlers such as httputil.ReverseProxy read it in
// another goroutine.
type requestBody struct {
	io.ReadCloser
	failed atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.failed.Store(true)
	}
	return n, err
}
