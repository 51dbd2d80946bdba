// Package proxy is the limiting reverse proxy behind weir proxy.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
)

// Config configures a Proxy. Listen, By and one of Limits, Rules and Overload must be set; the zero
// value of every other field is a usable default.
type Config struct {
	Listen string // the address to serve on

	// Upstream gets the admitted requests. h2c is the scheme of HTTP/2 without TLS. nil: a built-in
	// page.
	Upstream *url.URL

	// PreserveHost sends the client's Host to the upstream instead of the upstream's own.
	PreserveHost bool

	UpstreamTimeout time.Duration // for the header of an answer, or a piece of a body; 0: no bound
	// for the client to take a piece of a response, up to 32 KiB; 0: no bound
	SendTimeout time.Duration
	Drain       time.Duration // how long requests in flight may take after a stop
	// from the stop, when health checks begin to fail, to the closing of the listener
	DrainDelay time.Duration

	// NormalizePaths forwards paths as urlpath.Normalize writes them, and refuses those that it
	// refuses.
	NormalizePaths bool

	Limits    []rule.Rule // with names
	Try       []rule.Rule // with names; these deny nobody
	Routes    []Route
	Rules     cli.Rules // replace Limits and Routes
	By        By
	Trust     []netip.Prefix // proxies in front whose forwarding fields are trusted
	Allow     []netip.Prefix // exempt clients
	Forwarded bool           // the trusted proxies write Forwarded, not X-Forwarded-For
	IPv6Bits  int            // 1 to 128; 0: httplimit's default

	// Names of fields that only trusted proxies may set, and that clients may, whatever claimOf says.
	Strip, Pass []string

	// AddressPath is answered with the address that the request counts for, behind the limits. Empty:
	// none.
	AddressPath string

	TLS TLS

	// Bounds beside the limits. 0: no bound, except for MaxConns, whose default is half of the
	// files that the process may have open, up to 10,000.
	MaxConns, MaxConnsPerAddr         int
	MaxInFlight, MaxInFlightPerClient int
	Bodies                            Bodies

	// Overload admits requests as long as the upstream is not full, by the classes of Classes and,
	// beside them, of Rules.
	Overload Overload
	Classes  []Classed

	// Guard holds the middleware's settings that this package passes on, such as the headers, the
	// status and FailOpen. New sets its Extractor, limits, DenyList, hooks and Stats, and the Strategy
	// of its Penalty.
	Guard httplimit.Config

	// DeniedPage is read again by Reload; its Respond is Guard's. nil: none.
	DeniedPage *DeniedPage

	Deny     []httplimit.DenyEntry // entries of the deny list from the start
	DenyFile string                // stores the deny list; empty: changes are lost at a restart
	MaxDeny  int                   // 0: httplimit's default
	Table    weir.Config

	// StateFile stores the counts over a restart. Empty: they are lost.
	StateFile  string
	StateEvery time.Duration // between saves; 0: a minute

	Redis   onredis.Config // its Fallback's OnError and OnCall are set here
	Lease   int            // what windows and buckets take from Redis at once; 0: none
	Denials int            // the size of the cache of Redis's denials; 0: none

	Admin Admin

	Succession Succession // nil: this process opens its sockets, and has no successor

	Log    *slog.Logger // errors, starts and stops
	Access *slog.Logger // one line for each request; nil: none
	LogKey bool         // log the client's key in the access log

	routes  *routes.Table // of Routes; check makes it
	classes *classes      // of Classes; check makes them; nil: none
}

// TLS names the files of the certificate, in PEM. The zero value: plain HTTP.
type TLS struct{ Cert, Key string }

// Admin is the address of the status page, the statistics and the deny list.
type Admin struct {
	Addr   string   // empty: none
	Remote bool     // Addr may be other than a loopback address, which requires Token
	Token  string   // a Bearer token, or the password of Basic authorization
	Hosts  []string // allowed in the Host field besides localhost and IP addresses
}

func (a Admin) check() error {
	if a.Addr == "" {
		return nil
	}
	if err := checkAddr("admin", "127.0.0.1", a.Addr); err != nil {
		return err
	}
	local, err := live.CheckAdmin(a.Addr, a.Remote, "change the deny list")
	if err == nil && !local && a.Token == "" {
		err = fmt.Errorf("admin address %q is not a loopback address, so it needs a token: "+
			"give one in --admin-token-file or $WEIR_ADMIN_TOKEN", a.Addr)
	}
	if err != nil {
		return &cli.FlagError{Flags: []string{"admin"}, Err: err}
	}
	return nil
}

// checkSocket fails if l listens where check would not have it listen: a service manager may have
// passed another socket than Addr. Who may reach one of a file is for the file's mode to say.
func (a Admin) checkSocket(l net.Listener) error {
	if l.Addr().Network() == "unix" {
		return nil
	}
	a.Addr = l.Addr().String()
	return a.check()
}

// checkAddr fails if the address that a flag has the proxy listen on has no port, or one that there
// cannot be. host is for a port alone.
func checkAddr(flag, host, addr string) error {
	why := ""
	if _, port, err := net.SplitHostPort(addr); err == nil {
		if _, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err == nil {
			return nil
		}
		why = fmt.Sprintf("; there is no port %q", port)
	} else if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		why = fmt.Sprintf("; did you mean %q?", net.JoinHostPort(host, addr))
	}
	return cli.Wrong(flag, "must be HOST:PORT, not %q%s", addr, why)
}

// Check fails where New does, and opens no file and no connection.
func (c Config) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	c.TLS, c.DenyFile, c.StateFile, c.Rules = TLS{}, "", "", cli.Rules{}
	c.Redis.URL, _, _ = strings.Cut(c.Redis.URL, "?") // which may ask for idle connections
	p, err := start(&c)
	if err != nil {
		return err
	}
	return p.close()
}

// check checks what the fields are together. Each number by itself is checked where it is a flag,
// since 0 means the default here.
func (c *Config) check() (err error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Succession == nil {
		c.Succession = alone{}
	}
	if c.Upstream != nil {
		if err := checkUpstream(c.Upstream); err != nil {
			return &cli.FlagError{Flags: []string{"upstream"}, Err: err}
		}
	}
	c.routes, err = c.table()
	if err != nil {
		return err
	}
	limited := slices.ContainsFunc(c.limited(), func(r Route) bool { return len(r.Limits) > 0 })
	switch ruled := len(c.Rules.Paths) > 0; {
	case limited && ruled:
		return errors.New("want limits or rules")
	case !limited && !ruled && !c.Overload.On && c.MaxInFlight == 0:
		return errors.New("which limit? Give --limit, such as --limit 100/1m, --rules FILE, " +
			"--overload, or " +
			"--max-in-flight")
	}
	if err := checkOverload(c); err != nil {
		return err
	}
	if len(c.Routes) == 0 && c.By.keys.Pattern {
		return &cli.FlagError{Flags: []string{"by"},
			Err: errors.New("by pattern tells routes apart, and there are none: give a --route")}
	}
	if err := c.checkLimits("limit", 0, c.Limits); err != nil {
		return err
	}
	for i, r := range c.Routes {
		if len(r.Limits) == 0 && r.Cost == 0 && !c.By.keys.Pattern {
			return &cli.FlagError{Flags: []string{"route"}, Item: i, Err: fmt.Errorf("route %q: want a "+
				"limit or a cost, such as %q; cost=1 takes it out of a wider route", r.Pattern,
				r.Pattern+" limit=5/1m")}
		}
		if err := c.checkLimits("route", i, r.Limits); err != nil {
			return err
		}
	}
	c.Deny = slices.Clone(c.Deny)
	for i, e := range c.Deny {
		if e.Key == "" {
			continue
		}
		key, err := c.By.key(e.Key)
		if err != nil {
			return wrongDeny(i, err)
		}
		c.Deny[i].Key = key
	}
	if c.AddressPath != "" && !strings.HasPrefix(c.AddressPath, "/") {
		return &cli.FlagError{Flags: []string{"address-path"},
			Err: fmt.Errorf("the path %q of the address begins without a slash", c.AddressPath)}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return &cli.FlagError{Flags: []string{"tls-cert", "tls-key"},
			Err: errors.New("--tls-cert needs --tls-key, and --tls-key needs --tls-cert")}
	}
	if c.Redis.URL != "" {
		if err := c.Redis.Check(); err != nil {
			return err
		}
	}
	if err := checkAddr("listen", "", c.Listen); err != nil {
		return err
	}
	return c.Admin.check()
}

// wrongDeny is the error of item i of --deny.
func wrongDeny(i int, err error) error {
	return &cli.FlagError{Flags: []string{"deny"}, Item: i, Err: fmt.Errorf("--deny: %w", err)}
}

// checkLimits fails if two of limits have one name, or if one cannot be on Redis and is to be. They
// are the values of --limit, or those of one item of --route.
func (c *Config) checkLimits(flag string, item int, limits []rule.Rule) error {
	for i, l := range limits {
		var err error
		switch same := func(m rule.Rule) bool { return m.Name == l.Name }; {
		case slices.ContainsFunc(limits[:i], same):
			err = fmt.Errorf("two limits are named %q: leave one out, or give it a name, such as "+
				"second=%s", l.Name, l.Limit)
		case l.Strategy == rule.Leaky && c.Redis.URL != "":
			err = fmt.Errorf("limit %s: %w", l.Name, rule.ErrLeakyOnRedis)
		default:
			continue
		}
		if flag == "limit" {
			item = i
		}
		return &cli.FlagError{Flags: []string{flag}, Item: item, Err: err}
	}
	return nil
}

const (
	maxConns      = 10_000
	maxAdminConns = 256 // a further one, such as a health check's, replaces one without a request
	spareFiles    = 64  // for the log, the certificate, Redis and the deny file
)

// connBounds returns the bounds on the connections of clients. Each may need a second file for a
// connection to the upstream.
func (c *Config) connBounds() connBounds {
	b := connBounds{max: c.MaxConns, perAddr: c.MaxConnsPerAddr, send: c.SendTimeout,
		admin: maxAdminConns}
	files := maxFiles()
	if files > 0 {
		b.admin = max(1, min(b.admin, files/8))
	}
	if b.max == 0 {
		b.max = maxConns
		if files > 0 {
			b.max = max(1, min(b.max, (files-b.admin-min(spareFiles, files/8))/2))
		}
	}
	return b
}

func checkUpstream(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return fmt.Errorf("upstream %q: want http://, https://, or h2c:// for HTTP/2 without TLS",
			u.Redacted())
	case u.Host == "":
		return fmt.Errorf("upstream %q has no host", u.Redacted())
	case u.User != nil || u.Fragment != "" || u.RawQuery != "":
		return fmt.Errorf("upstream %q: want a scheme, a host and perhaps a path, and nothing else",
			u.Redacted())
	}
	return nil
}

// ip returns the extractor of the client's address.
func (c *Config) ip() httplimit.IP {
	ip := httplimit.ClientIP(c.Trust)
	if c.Forwarded {
		ip = ip.Forwarded()
	}
	return c.wide(ip)
}

// wide returns ip with the length of the prefixes that tell clients apart.
func (c *Config) wide(ip httplimit.IP) httplimit.IP {
	if c.IPv6Bits > 0 {
		return ip.IPv6Bits(c.IPv6Bits)
	}
	return ip
}

// keyOfAddr returns the key of a client's address.
func (c *Config) keyOfAddr(addr netip.Addr) (string, error) {
	return c.wide(httplimit.RemoteAddr()).Extract(&http.Request{
		RemoteAddr: net.JoinHostPort(addr.String(), "0"), Header: http.Header{},
	})
}

// limited returns the general limits, as those of a route without a pattern, and the routes with
// limits of their own.
func (c *Config) limited() []Route {
	all := []Route{{Limits: c.Limits}}
	for _, r := range c.Routes {
		if len(r.Limits) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// byTarget reports whether limits depend on the path or the method of requests.
func (c *Config) byTarget() bool {
	return len(c.Routes) > 0 || len(c.Rules.Paths) > 0 || c.By.keys.Path
}

// table returns the table of the Routes.
func (c *Config) table() (*routes.Table, error) {
	all := make([]routes.Route, len(c.Routes))
	for i, r := range c.Routes {
		if err := checkWords(r.Pattern); err != nil {
			return nil, &cli.FlagError{Flags: []string{"route"}, Item: i, Err: err}
		}
		all[i] = routes.Route{Pattern: r.Pattern, Cost: r.Cost, Limited: len(r.Limits) > 0}
	}
	table, err := routes.New(all, c.By.keys)
	for i := 0; err != nil; i++ { // which of them is it?
		if _, err := routes.New(all[:i+1], c.By.keys); err != nil {
			return nil, &cli.FlagError{Flags: []string{"route"}, Item: i, Err: err}
		}
	}
	return table, nil
}

var routeSettings = []string{"limit", "cost"}

// checkWords fails if a pattern has a word that is neither of its method, host and path nor of the
// settings of a route. ParseRoute leaves those from such a word on in the pattern.
func checkWords(pattern string) error {
	path := false
	for _, word := range strings.Fields(pattern) {
		before, _, slash := strings.Cut(word, "/")
		name, _, setting := strings.Cut(before, "=")
		switch {
		case setting && slices.Contains(routeSettings, name):
		case path || setting:
			return fmt.Errorf("route %q: %q is unknown: want limit=LIMIT or cost=N%s", pattern, word,
				cli.DidYouMean("", name, routeSettings))
		default:
			path = slash
		}
	}
	return nil
}
