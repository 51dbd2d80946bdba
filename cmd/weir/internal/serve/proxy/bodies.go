package proxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// bodyGrace is the default of Bodies.Grace.
const bodyGrace = 10 * time.Second

// Bodies bounds the bodies of requests. The zero value sets no bound.
type Bodies struct {
	Max   int64         // bytes of one body; 0: no bound
	Rate  int64         // bytes a second on average from the start, after Grace; 0: no bound
	Grace time.Duration // 0: 10 seconds
}

// bound applies the bounds to the bodies of requests.
func (b Bodies) bound(next http.Handler) http.Handler {
	if b.Max == 0 && b.Rate == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.Max > 0 && r.ContentLength > b.Max {
			w.Header().Set("Connection", "close") // the body will not be read
			http.Error(w, "The body is too large.", http.StatusRequestEntityTooLarge)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			if b.Rate > 0 {
				r.Body = b.pace(w, r)
			}
			if b.Max > 0 {
				r.Body = http.MaxBytesReader(w, r.Body, b.Max)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// pace returns the body with a read deadline that each byte extends. Over HTTP/1 it is set at once,
// since net/http reads a body that the handler left unread before it sends the answer, and begins
// anew with the first Read: until then the request may have waited in a leaky bucket.
func (b Bodies) pace(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	p := &pacedBody{
		ReadCloser: r.Body, conn: http.NewResponseController(w),
		grace: cmp.Or(b.Grace, bodyGrace), rate: b.Rate, rec: recordOf(r.Context()),
	}
	if r.ProtoMajor == 1 { // over HTTP/2 a deadline that has passed stays in force
		p.begin()
	}
	return p
}

// pacedBody is read by one goroutine at a time.
type pacedBody struct {
	io.ReadCloser
	conn     *http.ResponseController
	grace    time.Duration
	deadline time.Time
	rate     int64
	begun    bool // Read was called
	over     bool // EOF was read
	rec      *record
}

// begin sets the deadline to the end of the grace.
func (p *pacedBody) begin() {
	p.deadline = time.Now().Add(p.grace)
	_ = p.conn.SetReadDeadline(p.deadline) // only writers of tests have no deadlines
}

func (p *pacedBody) Read(buf []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.begin()
	}
	n, err := p.ReadCloser.Read(buf)
	switch {
	case err == nil:
		p.deadline = p.deadline.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
		_ = p.conn.SetReadDeadline(p.deadline)
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.blame(http.StatusRequestTimeout)
	case err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose):
		p.blame(http.StatusBadRequest) // it broke off or is malformed
	case err == io.EOF && !p.over:
		p.over = true
		_ = p.conn.SetReadDeadline(time.Time{}) // the handler may take longer
	}
	return n, err
}

// blame records that the client made the body fail. net/http cancels the request on every failed
// read, so the handler may see only the cancellation.
func (p *pacedBody) blame(status int32) { p.rec.fault.CompareAndSwap(0, status) }
