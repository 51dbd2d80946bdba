package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/report"
)

// upstream returns the handler that passes requests on to target.
func (p *Proxy) upstream(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if p.cfg.PreserveHost {
				r.Out.Host = r.In.Host
			}
			p.forward(r)
		},
		Transport:     transport(p.cfg.UpstreamTimeout),
		FlushInterval: -1, // what the upstream sends in pieces, the client gets in pieces
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn),
		ErrorHandler:  p.badGateway,
	}
}

// forward tells the upstream whom it is asked for. What the client says of that itself is believed of a trusted peer only,
// as the limiter does.
func (p *Proxy) forward(r *httputil.ProxyRequest) {
	trusted := p.trusts(r.In.RemoteAddr)
	if trusted {
		copyField(r, "X-Forwarded-For") // SetXForwarded appends the peer to it
	}
	r.SetXForwarded()
	if !trusted {
		r.Out.Header.Del("X-Real-Ip") // which ReverseProxy lets through, and servers believe
		return
	}
	copyField(r, "X-Forwarded-Host")
	copyField(r, "X-Forwarded-Proto") // https, perhaps, which ends at the peer
	if p.cfg.Forwarded {
		copyField(r, "Forwarded")
	}
}

func copyField(r *httputil.ProxyRequest, name string) {
	if values := r.In.Header[name]; len(values) > 0 {
		r.Out.Header[name] = values
	}
}

func (p *Proxy) trusts(peer string) bool {
	ap, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := ap.Addr().Unmap().WithZone("")
	for _, prefix := range p.cfg.Trust {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// transport keeps as many connections as there are requests at one time: a connection for each request would be the
// better part of its cost, and use up the ports.
func transport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: timeout,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the client did not ask for is neither asked for nor unpacked here
	}
}

// badGateway answers when the upstream does not.
func (p *Proxy) badGateway(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		w.WriteHeader(statusGone) // nobody reads it, but the access log
		return
	}
	status := http.StatusBadGateway
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		status = http.StatusGatewayTimeout
	}
	p.cfg.Log.Warn("the upstream failed", "method", report.Printable(r.Method), "path", report.Printable(r.URL.Path), "error", report.Printable(err.Error()))
	http.Error(w, http.StatusText(status), status)
}

// statusGone is what nginx logs for a client that went away.
const statusGone = 499

// buffers are what ReverseProxy copies through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }
