package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// errUnread cancels a request whose body the upstream does not read.
var errUnread = errors.New("the upstream does not read the body")

// boundUnread cancels requests of which next reads no piece of the body for d, unless d is 0. Over
// HTTP/1, nobody notices meanwhile that the client has left, and the request would stay in flight.
func boundUnread(next http.Handler, d time.Duration) http.Handler {
	if d == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		unread := time.AfterFunc(d, func() { cancel(errUnread) })
		defer unread.Stop()
		r = r.WithContext(ctx)
		r.Body = &awaitedBody{r.Body, unread, d}
		next.ServeHTTP(w, r)
	})
}

// awaitedBody stops a timer while it is read, and for good at its end.
type awaitedBody struct {
	io.ReadCloser
	unread *time.Timer
	d      time.Duration
}

func (b *awaitedBody) Read(buf []byte) (int, error) {
	b.unread.Stop()
	n, err := b.ReadCloser.Read(buf)
	if err == nil {
		b.unread.Reset(b.d)
	}
	return n, err
}
