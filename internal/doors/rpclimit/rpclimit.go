// Package rpclimit guards remote procedure calls by the policies of package httplimit. It is for
// adapters to RPC frameworks, such as those in adapters/grpclimit and adapters/connectlimit: a
// program uses these.
//
// A call is presented to the functions of an [httplimit.Config] as the HTTP request that it is in
// gRPC: a POST to "/package.Service/Method", with the metadata as headers. So every Extractor,
// LimitFunc and policy works on it.
package rpclimit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
)

// Call describes a call for the functions of the Config.
type Call struct {
	// Method is the full name, "/package.Service/Method". It is the request's path, and its
	// Pattern: the extractor [httplimit.Pattern] keys by it.
	Method string

	// Host is the authority that the client asked for.
	Host string

	// Peer is the address of the client, host:port. Any other text, such as that of a Unix socket or
	// of a connection in memory, is taken as a process of this machine: 127.0.0.1.
	Peer string

	// Header is the metadata, by the canonical keys of an http.Header.
	Header http.Header

	// TLS is the state of the connection; nil if it is not encrypted or not known.
	TLS *tls.ConnectionState

	// Stream says that the call is a stream, whose length says nothing of the service.
	Stream bool
}

func (c *Call) request(ctx context.Context) *http.Request {
	r := &http.Request{
		Method:     http.MethodPost,
		URL:        &url.URL{Path: c.Method},
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		Header:     c.Header,
		Body:       http.NoBody,
		Host:       c.Host,
		RemoteAddr: c.remoteAddr(),
		RequestURI: c.Method,
		Pattern:    c.Method,
		TLS:        c.TLS,
	}
	if r.Header == nil {
		r.Header = http.Header{} // a LimitFunc may set a key
	}
	return r.WithContext(ctx)
}

// remoteAddr returns Peer, or the loopback address if that is no IP address.
func (c *Call) remoteAddr() string {
	if _, err := netip.ParseAddrPort(c.Peer); err == nil {
		return c.Peer
	}
	if _, err := netip.ParseAddr(c.Peer); err == nil {
		return c.Peer
	}
	return "127.0.0.1:0"
}

// Guard decides on calls. It is safe for concurrent use.
type Guard struct {
	guard *httplimit.Guard
	cfg   httplimit.Config
}

// New returns a Guard that consults s before each call, as [httplimit.New] does, with the same
// panics. It also panics if Respond or CORS is set: their answers are HTTP's.
func New(s weir.Strategy, cfg httplimit.Config) *Guard {
	switch {
	case cfg.Respond != nil:
		panic("rpclimit: Respond writes HTTP answers")
	case len(cfg.CORS.Origins) > 0:
		panic("rpclimit: CORS is for HTTP answers")
	}
	return &Guard{httplimit.NewGuard(s, cfg), cfg}
}

// Handler runs a call that was admitted, and returns the code that it ended with. The fields are
// those that report the limit to the client; it keeps them if it likes. ctx serves
// [httplimit.IsBypassed].
type Handler func(ctx context.Context, fields http.Header) Code

// Run runs handle at most once, if the call is admitted or in shadow mode, and returns nil then.
// Otherwise it returns the answer. Panics of handle pass through.
//
// CountIf sees the code as an HTTP status, see [Code.HTTPStatus].
func (g *Guard) Run(ctx context.Context, c Call, handle Handler) *Refusal {
	t := g.guard.Begin(c.request(ctx))
	defer t.Abort()
	fields := make(http.Header)
	t.SetFields(fields)
	if !t.Passes() {
		d := t.Decision()
		t.End(0)
		return &Refusal{Code: refusalCode(ctx, d), Message: message(d), Fields: fields, Decision: d}
	}
	if c.Stream {
		t.Stream()
	}
	t.End(handle(t.Context(), fields).HTTPStatus())
	return nil
}

// Admit decides on a call, or on a part of one, that no handler ends. It returns the answer if it
// is not admitted, and the fields that report the limit if it is. [Guard.CheckNoHandler] reports
// whether that is enough.
func (g *Guard) Admit(ctx context.Context, c Call) (fields http.Header, refusal *Refusal) {
	refusal = g.Run(ctx, c, func(_ context.Context, sent http.Header) Code {
		fields = sent
		return OK
	})
	return fields, refusal
}

// CheckNoHandler returns an error if the Config has a field that concerns what a handler does, for
// adapters that run before the handler and do not see its end.
func (g *Guard) CheckNoHandler() error {
	switch {
	case g.cfg.CountIf != nil:
		return errors.New("CountIf needs the outcome of the handler")
	case g.cfg.MaxInFlight > 0 || g.cfg.Overload != nil || !g.cfg.Concurrency.IsZero():
		return errors.New("bounds on calls in flight need the end of the handler")
	}
	return nil
}

// Refusal is the answer to a call that was not admitted.
type Refusal struct {
	Code     Code
	Message  string
	Fields   http.Header // that report the limit
	Decision httplimit.Decision
}

func refusalCode(ctx context.Context, d httplimit.Decision) Code {
	switch d.Kind {
	case httplimit.Denied:
		return ResourceExhausted
	case httplimit.NoKey:
		return InvalidArgument
	case httplimit.Canceled:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return DeadlineExceeded
		}
		return Canceled
	}
	if d.Full != nil && d.Full.Reason == overload.ShareUsed {
		return ResourceExhausted
	}
	switch d.Status { // Listed for good or for a while, Busy, Failed
	case http.StatusForbidden:
		return PermissionDenied
	case http.StatusServiceUnavailable:
		return Unavailable
	}
	return ResourceExhausted
}

func message(d httplimit.Decision) string {
	switch d.Kind {
	case httplimit.Denied:
		return fmt.Sprintf("over the limit %q", d.Policy)
	case httplimit.Listed:
		return "this caller is on the deny list"
	case httplimit.NoKey:
		return "the call does not say who sent it"
	case httplimit.Busy:
		if d.Full != nil && d.Full.Reason == overload.ShareUsed {
			return "this caller has too many calls in flight"
		}
		return "too many calls are in flight"
	case httplimit.Canceled:
		return "the call ended before the rate limiter decided"
	}
	return "the rate limiter could not decide"
}
