package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/httplimit"
)

// upstream passes requests on.
type upstream struct {
	cfg       *Config
	via       string // this process in the Via field
	fields    *clientFields
	transport *timed
}

// handler returns the handler that forwards requests.
func (u *upstream) handler() http.Handler {
	target := u.cfg.Upstream
	if target.Scheme == "h2c" {
		plain := *target
		plain.Scheme, target = "http", &plain
	}
	return boundUnread(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.In.URL.Path == "*" {
				r.Out.URL.Path, r.Out.URL.RawPath = "*", ""
			}
			if u.cfg.PreserveHost {
				r.Out.Host = r.In.Host
			}
			keepWebSocketsOnly(r.Out.Header)
			// The transport would not read the body if the upstream answers without it, and net/http notices
			// that a client has left only after the body. With its first Read it answers 100 itself.
			r.Out.Header.Del("Expect")
			u.fields.forward(r)
			r.Out.Header.Add("Via", viaOf(r.In)+u.via)
		},
		ModifyResponse: u.modify,
		Transport:      u.transport,
		BufferPool:     &buffers{},
		FlushInterval:  pieceEvery,
		ErrorLog:       slog.NewLogLogger(u.cfg.Log.Handler(), slog.LevelWarn),
		ErrorHandler:   u.badGateway,
	}, u.cfg.UpstreamTimeout)
}

// modify removes the upstream's rate limit fields that the middleware sets too: with two values for
// a field of one value, a client could not choose. The draft's fields are lists and stay.
func (u *upstream) modify(resp *http.Response) error {
	if r := resp.Request; resp.ProtoMajor == 2 && r.Body != nil && r.Body != http.NoBody {
		// Over HTTP/2 the transport does not notice that the request is canceled while the upstream does
		// not read its body.
		context.AfterFunc(r.Context(), func() { _ = resp.Body.Close() })
	}
	if u.cfg.Guard.Headers == httplimit.HeadersDraft || u.cfg.Guard.Shadow {
		return nil
	}
	for _, name := range u.cfg.Guard.Headers.Fields() {
		resp.Header.Del(name)
	}
	return nil
}

// badGateway answers when the upstream fails.
func (u *upstream) badGateway(w http.ResponseWriter, r *http.Request, err error) {
	if status := clientsFault(r, err); status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	unread := errors.Is(context.Cause(r.Context()), errUnread)
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) && !unread {
		w.WriteHeader(statusGone) // for the access log
		return
	}
	status := http.StatusBadGateway
	var timeout net.Error
	if unread {
		err = errUnread
	}
	if unread || errors.As(err, &timeout) && timeout.Timeout() {
		status = http.StatusGatewayTimeout
	}
	u.cfg.Log.Warn("the upstream failed", "method", screen.Printable(r.Method),
		"path", logged(r.URL.Path), "error", screen.Printable(err.Error()))
	http.Error(w, http.StatusText(status), status)
}

// transportOf returns the transport of a Proxy: that of the configuration before, if what it
// depends on is as it was. nil: there is no upstream.
func transportOf(p *Proxy) *timed {
	if p.cfg.Upstream == nil {
		return nil
	}
	before := p.before()
	if was := before.cfg; before.transport != nil &&
		was.Upstream.String() == p.cfg.Upstream.String() &&
		was.UpstreamTimeout == p.cfg.UpstreamTimeout && was.MaxConns == p.cfg.MaxConns {
		return before.transport
	}
	return newTimed(newTransport(&p.cfg), p.process)
}

// newTransport returns a transport for requests to the upstream. It keeps enough idle connections
// for all concurrent requests: a new connection for each would be most of the cost of a request,
// and use up the ports.
func newTransport(cfg *Config) *http.Transport {
	next := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second,
			KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: cfg.UpstreamTimeout,
		MaxIdleConnsPerHost:   1024,
		MaxConnsPerHost:       cfg.connBounds().max, // the bound on the clients' connections
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // the client's Accept-Encoding passes through
	}
	if cfg.Upstream.Scheme == "h2c" {
		next.Protocols = protocols(false)
	}
	return next
}

// viaOf returns the version of a request's protocol as the Via field has it, with a blank. net/http
// knows versions of two digits only.
func viaOf(r *http.Request) string {
	return string([]byte{'0' + byte(r.ProtoMajor), '.', '0' + byte(r.ProtoMinor), ' '})
}

// keepWebSocketsOnly strips every other upgrade. An upgraded connection is a tunnel: requests in
// it, such as HTTP/2 after Upgrade: h2c, would be neither counted nor logged.
func keepWebSocketsOnly(h http.Header) {
	if strings.EqualFold(h.Get("Upgrade"), "websocket") {
		h.Set("Upgrade", "websocket")
		return
	}
	h.Del("Upgrade")
	h.Del("Connection")
	h.Del("Http2-Settings")
}

var errTarget = errors.New("the target is neither a path nor a URL")

// refuse refuses CONNECT, which would open a tunnel, requests that have passed this proxy before,
// and those whose target is no path.
func refuse(p *Proxy, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			http.Error(w, "This proxy makes no tunnels.", http.StatusMethodNotAllowed)
		case wasHere(r, p.via):
			if dropped, ok := p.loops.Allow(time.Now(), logEvery); ok {
				p.cfg.Log.Error("a request came back: the upstream leads to this proxy", "not_logged", dropped)
			}
			http.Error(w, "This proxy is its own upstream.", http.StatusLoopDetected)
		case r.URL.Opaque != "" || r.URL.Path == "*" && r.Method != http.MethodOptions:
			http.Error(w, refusal(errTarget), http.StatusBadRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// wasHere reports whether a request has passed a process, by its name in the Via field.
func wasHere(r *http.Request, via string) bool {
	for _, line := range r.Header["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			if fields := strings.Fields(hop); len(fields) > 1 && fields[1] == via {
				return true
			}
		}
	}
	return false
}

// pieceEvery is how long a piece of a body with a length may wait for the next one. Those that come
// at once, as nearly all do, leave in one write with the header: two are a seventh of the cost of a
// request. A body without a length is flushed piece by piece.
const pieceEvery = 10 * time.Millisecond

// contain reports whether addr is in one of all.
func contain(all []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// protocols returns HTTP/2, with and without TLS, and HTTP/1 if http1 is set.
func protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// timed observes how long the upstream takes until the header of its response. Requests that fail
// by the client's fault say nothing of the upstream and are left out.
type timed struct {
	*http.Transport
	of      *process
	failed  prometheus.Observer
	gone    prometheus.Observer    // clients that left before the answer
	seconds [6]prometheus.Observer // by the first digit of the status, from 1; the others are failed
}

func newTimed(next *http.Transport, of *process) *timed {
	seconds := of.watch.upstream
	t := &timed{Transport: next, of: of, failed: seconds.WithLabelValues("error"),
		gone: seconds.WithLabelValues("gone")}
	for class := range t.seconds {
		t.seconds[class] = t.failed
		if class > 0 {
			t.seconds[class] = seconds.WithLabelValues(strconv.Itoa(class) + "xx")
		}
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *timed) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.Transport.RoundTrip(r)
	took, key := time.Since(start), recordOf(r.Context()).decision.Key
	seconds, status := t.failed, http.StatusBadGateway
	switch {
	case err == nil && resp.StatusCode < 600:
		status = resp.StatusCode
		seconds = t.seconds[status/100]
	case err != nil && r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errUnread):
		t.gone.Observe(took.Seconds())
		t.of.served.Gone(took)
		t.of.callers.Served(key, took, 0)
		return nil, err
	case err != nil && clientsFault(r, err) != 0:
		return nil, err
	}
	seconds.Observe(took.Seconds())
	t.of.served.Observe(took, status >= http.StatusInternalServerError)
	t.of.callers.Served(key, took, status)
	return resp, err
}

// clientsFault returns the status of an error that the request's body caused, or 0.
func clientsFault(r *http.Request, err error) int {
	if errors.As(err, new(*http.MaxBytesError)) {
		return http.StatusRequestEntityTooLarge
	}
	return int(recordOf(r.Context()).fault.Load())
}

// statusGone is nginx's status for a client that closed the connection.
const statusGone = 499

// buffers is ReverseProxy's BufferPool.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }
