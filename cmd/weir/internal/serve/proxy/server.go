package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
)

// maxStreams bounds the requests that an HTTP/2 connection may have at the same time. Chromium and
// curl open as many.
const maxStreams = 100

// server is a running http.Server.
type server struct {
	*http.Server
	conns  *conns
	failed chan error // the error, if it ended without Close or Shutdown
}

// newServer serves on a socket until end, and logs what net/http has to say.
func newServer(
	l net.Listener, h http.Handler, requests context.Context, b connBounds, cert *live.Certificate,
	log *slog.Logger,
) *server {
	s := &server{
		Server: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: headerTimeout, // bounds clients that send a byte now and then
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
			BaseContext:       func(net.Listener) context.Context { return requests },
			ConnContext:       connContext,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			Protocols:         protocols(true),

			DisableGeneralOptionsHandler: true, // it answers OPTIONS * without the limits
		},
		conns:  newConns(l, b),
		failed: make(chan error, 1),
	}
	serve := func() error { return s.Serve(s.conns) }
	if cert != nil {
		s.TLSConfig = &tls.Config{GetCertificate: cert.Get, MinVersion: tls.VersionTLS12}
		serve = func() error { return s.ServeTLS(s.conns, "", "") }
	}
	go func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	return s
}

// end closes the server and its connections.
func (s *server) end() { _ = s.Close() } // the listener may be closed already
