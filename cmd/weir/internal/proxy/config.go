// Package proxy is the limiting reverse proxy behind weir proxy.
package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Config is all there is to say to a Proxy. Listen, Limits or Rules, and By must be set; the zero
// value of everything else is a sensible one.
type Config struct {
	Listen string // the address to serve on

	// Upstream is where admitted requests go; nil: to a built-in page.
	Upstream *url.URL

	// PreserveHost passes the Host that the client asked for to the upstream, in place of the
	// upstream's own.
	PreserveHost bool

	UpstreamTimeout time.Duration // until the upstream's headers are there; 0: as long as it takes
	Drain           time.Duration // how long requests in flight may take after a stop
	DrainDelay      time.Duration // from the stop, which the health check tells, until no connection is taken

	Limits     []Limit
	Routes     []Route
	Rules      Rules // in the place of Limits and Routes
	ExactPaths bool  // routes and keys go by the spelling of a path
	By         By
	Trust      []netip.Prefix // proxies in front whose forwarding fields are believed
	Allow      []netip.Prefix // clients without a limit
	Forwarded  bool           // they write Forwarded, not X-Forwarded-For
	IPv6Bits   int            // 0: httplimit's default

	TLS TLS

	// The bounds that hold whatever the limits are. 0: none, but for MaxConns, of which the default is
	// what the process may have open, up to 10,000.
	MaxConns, MaxConnsPerAddr         int
	MaxInFlight, MaxInFlightPerClient int
	Bodies                            Bodies

	// Guard is what the middleware is told and this package has no say in: the headers, the status,
	// what becomes of requests that are not decided. Its Extractor, limits, DenyList, hooks and Stats
	// are set by New.
	Guard httplimit.Config

	// DeniedPage is read again by Reload; its Respond is Guard's. nil: there is none.
	DeniedPage *DeniedPage

	Penalty  Penalty
	Deny     []httplimit.Entry // on the deny list from the start
	DenyFile string            // keeps what is put on the deny list later; empty: nothing does
	MaxDeny  int               // 0: httplimit's default
	Table    weir.Config

	// StateFile keeps what is counted over a restart; empty: nothing does.
	StateFile string

	Redis Redis
	Admin Admin

	Log    *slog.Logger // errors, starts and stops
	Access *slog.Logger // one line for each request; nil: none
	LogKey bool         // the caller's key is in the access log
}

// Penalty is httplimit's, before there is a Strategy. The zero value: none.
type Penalty struct {
	Denials     uint64
	Within, For time.Duration
}

// Admin is the address of the page for people, of the figures and of the deny list.
type Admin struct {
	Addr   string   // empty: there is none
	Remote bool     // Addr may be other than a loopback address; Token is then needed
	Token  string   // to be given as a Bearer token, or as the password of Basic authorization
	Hosts  []string // names, besides localhost, that Addr is asked for by; addresses are always right
}

// minToken is the shortest token that is taken: 16 random characters are too many to try.
const minToken = 16

func (a Admin) check() error {
	if a.Addr == "" {
		return nil
	}
	if a.Token != "" && len(a.Token) < minToken {
		return fmt.Errorf("the admin token is %d bytes long: it needs %d", len(a.Token), minToken)
	}
	host, _, err := net.SplitHostPort(a.Addr)
	if err != nil {
		return fmt.Errorf("admin address %q: %w", a.Addr, err)
	}
	switch {
	case isLoopback(host):
		return nil
	case !a.Remote:
		return fmt.Errorf("admin address %q is not a loopback address: who reaches it can change the deny list; say --admin-remote if that is meant", a.Addr)
	case a.Token == "":
		return fmt.Errorf("admin address %q is not a loopback address, so it needs a token", a.Addr)
	}
	return nil
}

// isLoopback does not look names up: an answer may change.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (c *Config) check() error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Upstream != nil {
		if err := checkUpstream(c.Upstream); err != nil {
			return err
		}
	}
	if (len(c.Limits) == 0) == (len(c.Rules.Paths) == 0) {
		return errors.New("want limits or rules")
	}
	if len(c.Rules.Paths) > 0 && len(c.Routes) > 0 {
		return errors.New("routes have no meaning with rules")
	}
	if c.IPv6Bits < 0 || c.IPv6Bits > 128 {
		return fmt.Errorf("an IPv6 prefix is of 1 to 128 bits, not %d", c.IPv6Bits)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return errors.New("a certificate needs its key, and a key its certificate")
	}
	if min(c.MaxConns, c.MaxConnsPerAddr, c.MaxInFlight, c.MaxInFlightPerClient) < 0 || min(c.Bodies.Max, c.Bodies.Rate) < 0 {
		return errors.New("a bound is negative")
	}
	if err := c.Redis.check(); err != nil {
		return err
	}
	return c.Admin.check()
}

const (
	maxConns = 10_000

	// spareFiles are those of the admin address, the log, the certificate and the deny file.
	spareFiles = maxAdminConns + 64
)

// connBounds returns the bounds on the connections of clients. Each may need another one to the
// upstream.
func (c *Config) connBounds() connBounds {
	b := connBounds{max: c.MaxConns, perAddr: c.MaxConnsPerAddr}
	if b.max == 0 {
		b.max = maxConns
		if files := maxFiles(); files > 0 {
			b.max = max(1, min(b.max, (files-spareFiles)/2))
		}
	}
	return b
}

func checkUpstream(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("upstream %q: want http:// or https://", u.Redacted())
	case u.Host == "":
		return fmt.Errorf("upstream %q has no host", u.Redacted())
	case u.User != nil || u.Fragment != "" || u.RawQuery != "":
		return fmt.Errorf("upstream %q: want a scheme, a host and perhaps a path, and nothing else", u.Redacted())
	}
	return nil
}

// ip is the extractor of the client's address.
func (c *Config) ip() httplimit.IP {
	ip := httplimit.ClientIP(c.Trust)
	if c.Forwarded {
		ip = ip.Forwarded()
	}
	if c.IPv6Bits > 0 {
		ip = ip.IPv6Bits(c.IPv6Bits)
	}
	return ip
}
