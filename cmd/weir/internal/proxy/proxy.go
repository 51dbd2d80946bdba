package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/routes"
	"github.com/weirgo/weir/cmd/weir/internal/traffic"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/overload"
)

// Proxy is a limiting reverse proxy. Make one with New. It is one configuration of a process: after
// Reconfigure there is another one.
type Proxy struct {
	*process
	cfg    Config
	ip     httplimit.IP
	routes *routes.Table
	trial  *trial // nil: none
	// to the upstream; nil: none. It is that of the configuration before, if its settings are the
	// same.
	transport *timed
	held      held

	drop, pass map[string]bool // plain names of fields: see Config.Strip
	plain      map[string]bool // see plainFields

	concurrency httplimit.Policy // on requests in flight of one caller; zero: none
	full        *overload.Guard  // of the upstream; nil: none

	handler http.Handler
	admin   http.Handler
}

// process is what a Proxy keeps when its configuration changes.
type process struct {
	current atomic.Pointer[Proxy]

	via     string // this process in the Via field
	limiter *weir.Limiter
	redis   *onredis.Store        // nil: limits are local
	ruled   *ruled                // nil: no rules
	conns   atomic.Pointer[conns] // of clients; nil before Run
	gate    *live.Gate            // nil: no token
	cert    *live.Certificate     // nil: plain HTTP

	denied  *denyList
	state   *stateFile // nil: none
	stats   httplimit.Stats
	flight  httplimit.Stats   // of the bound on requests in flight of all clients
	places  atomic.Int64      // of that bound, which are taken
	counts  [16]atomic.Uint64 // of other decisions, by httplimit's Outcome
	denials *live.Denials
	recent  *recent
	callers *traffic.Callers                // by what they send, whatever is decided
	lately  *traffic.Lately[traffic.Sample] // some of what was admitted
	served  traffic.Upstream

	meter   live.Meter
	table   tableFigures
	watch   watch
	started time.Time

	loops, redisFailed throttle.Throttle // of their records in the log

	inFlight sync.WaitGroup // requests, including hijacked ones
	open     atomic.Int64   // the number of these
	stopping atomic.Bool
}

// logEvery bounds the records of one kind in the log.
const logEvery = 10 * time.Second

// New returns a Proxy that serves once Run is called. It fails if cfg is invalid.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return start(&cfg)
}

// start returns a Proxy of a valid configuration. It fails where its parts do.
func start(cfg *Config) (*Proxy, error) {
	limiter, err := weir.New(cfg.Table)
	if err != nil {
		return nil, err
	}
	p := newProxy(cfg, &process{
		via: "weir-" + strings.ToLower(rand.Text()[:12]), limiter: limiter,
		watch: newWatch(), started: time.Now(), recent: newRecent(), denials: live.NewDenials(),
		callers: traffic.NewCallers(live.Counted), lately: traffic.NewSamples(),
	})
	p.meter.Totals = func() live.Sums { return p.current.Load().totals() }
	p.meter.Second = func() { p.served.Tick(p.open.Load()) }
	if err := p.build(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// newProxy returns a Proxy of a valid configuration without its handlers.
func newProxy(c *Config, of *process) *Proxy {
	p := &Proxy{
		drop: plainSet(c.Strip), pass: plainSet(c.Pass), process: of, cfg: *c, ip: c.ip(),
		routes: c.routes, held: held{table: c.routes, routed: make(map[string]*routed)}}
	p.plain = p.plainFields()
	return p
}

// build makes what the process keeps, and then the handlers.
func (p *Proxy) build() (err error) {
	p.gate, err = live.NewGate(p.cfg.Admin.Token, p.cfg.Log)
	if err != nil {
		return err
	}
	if p.cfg.TLS.Cert != "" {
		p.cert, err = live.NewCertificate(p.cfg.TLS.Cert, p.cfg.TLS.Key, p.cfg.Log)
		if err != nil {
			return err
		}
	}
	if p.cfg.StateFile != "" && !p.cfg.Succession.Succeeds() {
		if err := p.openState(); err != nil {
			return err
		}
	}
	if p.cfg.Redis.URL != "" {
		p.redis, err = openRedis(p)
		if err != nil {
			return err
		}
	}
	p.denied, err = newDenyList(p.cfg.MaxDeny, p.cfg.DenyFile)
	if err != nil {
		return err
	}
	if len(p.cfg.Rules.Paths) > 0 {
		p.ruled, err = newRuled(p)
		if err != nil {
			return err
		}
	}
	return p.begin()
}

// openState opens the state file. p.state is nil if it fails.
func (p *Proxy) openState() (err error) {
	p.state, err = openState(p.cfg.StateFile, p.cfg.StateEvery, p.limiter, p.cfg.Log)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// begin makes the handlers, and has them serve the requests that follow.
func (p *Proxy) begin() error {
	p.setTransport()
	if err := p.setConcurrency(); err != nil {
		return err
	}
	if err := setOverload(p); err != nil {
		return err
	}
	next, err := p.limited()
	if err != nil {
		return err
	}
	next, err = p.boundInFlight(next)
	if err != nil {
		return err
	}
	p.handler = occupy(p.observe(p.refuse(p.cfg.Bodies.bound(next))))
	p.admin = occupy(adminServer{p}.handler())
	if err := p.denied.follow(p.before().cfg.Deny, p.cfg.Deny, p.cfg.Log); err != nil {
		return err
	}
	if p.redis != nil && p.ruled == nil { // rules have their own
		p.redis.Retain(func(h onredis.Hybrid) bool {
			counts := func(l *heldTo) bool { return l.policy.Strategy == weir.Strategy(h.Fallback) }
			return slices.ContainsFunc(p.held.limits, counts)
		})
	}
	before := p.current.Swap(p)
	if before != nil && before.transport != nil && before.transport != p.transport {
		before.transport.CloseIdleConnections() // those in use end a minute after their request
	}
	if cs := p.conns.Load(); cs != nil {
		cs.bind(p.connBounds())
	}
	return nil
}

// stores returns where limits count.
func (p *Proxy) stores() stores { return stores{p.limiter, p.redis, p.cfg.Denials, p.cfg.Lease} }

// connBounds returns the bounds on the connections of clients.
func (p *Proxy) connBounds() connBounds {
	b := p.cfg.connBounds()
	b.exempt = p.trustsAddr
	return b
}

// Reconfigure has cfg decide on the requests that follow, and on connections. Limits keep what they
// have counted under their names, and the bounds what is in flight. It fails without an effect if
// cfg is invalid. What it cannot change must be as it is: the addresses, the names of the files,
// the token, the table, and Redis.
func (p *Proxy) Reconfigure(cfg Config) error {
	old := p.current.Load().cfg
	cfg.Succession = old.Succession
	cfg.Log = old.Log // what the process keeps logs there
	switch {
	case p.ruled != nil && cfg.Guard.Shadow != old.Guard.Shadow:
		return errors.New("the shadow mode of rules cannot be changed without a restart")
	case len(cfg.Rules.Paths) != len(old.Rules.Paths):
		return errors.New("rules and limits cannot be exchanged without a restart")
	}
	if err := cfg.check(); err != nil {
		return err
	}
	return newProxy(&cfg, p.process).begin()
}

// before returns the configuration that serves until the next one begins, at first an empty one.
func (p *process) before() *Proxy { return cmp.Or(p.current.Load(), new(Proxy)) }

// now is the handler that serves as the current configuration says.
func (p *process) now(of func(*Proxy) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of(p.current.Load()).ServeHTTP(w, r)
	})
}

// limited returns the upstream or the built-in page behind the limits.
func (p *Proxy) limited() (http.Handler, error) {
	text := ""
	if len(p.cfg.Limits) > 0 {
		text = p.cfg.Limits[0].Limit
	}
	next := builtIn(text)
	if p.cfg.Upstream != nil {
		next = p.upstream(p.cfg.Upstream)
	}
	if p.cfg.AddressPath != "" {
		next = p.showAddress(next)
	}
	return p.guard(next)
}

// showAddress answers requests for AddressPath with the address that they count for.
func (p *Proxy) showAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == p.cfg.AddressPath {
			p.ip.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Reload reads the files again: the certificate, the deny list, the page of a denial and the rules.
// A file that cannot be read leaves its old contents in force.
func (p *Proxy) Reload() error {
	p = p.current.Load()
	var errs []error
	if p.cfg.DenyFile != "" {
		errs = append(errs, p.denied.load(p.cfg.Deny, p.cfg.Log))
	}
	if p.cert != nil {
		errs = append(errs, p.cert.Reload())
	}
	if p.cfg.DeniedPage != nil {
		errs = append(errs, p.cfg.DeniedPage.reload())
	}
	if p.ruled != nil {
		errs = append(errs, p.ruled.Reload())
	}
	err := errors.Join(errs...)
	if err != nil {
		p.cfg.Log.Error("reloaded in part", "error", err.Error())
	} else {
		p.cfg.Log.Info("files read again")
	}
	return err
}

// close releases what New acquired.
func (p *Proxy) close() error {
	err := p.gate.Close()
	if p.redis != nil {
		err = errors.Join(err, p.redis.Close())
	}
	if p.state != nil {
		p.state.unlock()
	}
	return errors.Join(err, p.limiter.Close())
}

// Handler returns what Run serves on Listen.
func (p *Proxy) Handler() http.Handler {
	return p.now(func(p *Proxy) http.Handler { return p.handler })
}

// Run serves until ctx ends, and then until the requests in flight are done or Drain has passed. It
// returns nil if no request was cut off. Run can be called once.
func (p *Proxy) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	// Requests may outlive ctx, but not Run.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()

	frontSocket, err := p.cfg.Succession.Listen(requests, "listen", p.cfg.Listen)
	if err != nil {
		return err
	}
	defer frontSocket.Close()
	var backSocket net.Listener
	if p.cfg.Admin.Addr != "" {
		backSocket, err = p.cfg.Succession.Listen(requests, "admin", p.cfg.Admin.Addr)
		if err != nil {
			return err
		}
		defer backSocket.Close()
		if err := p.cfg.Admin.checkSocket(backSocket); err != nil {
			return err
		}
	}
	if err := p.succeed(ctx); err != nil {
		return err
	}
	front := p.serve(frontSocket, p.Handler(), requests, p.connBounds(), p.cert)
	defer front.end()
	p.conns.Store(front.conns)
	back := &server{}
	if backSocket != nil {
		admin := p.now(func(p *Proxy) http.Handler { return p.admin })
		back = p.serve(backSocket, admin, requests,
			connBounds{max: p.cfg.connBounds().admin, send: time.Minute}, nil)
		defer back.end()
	}
	p.announce(front, back)
	if p.ruled != nil {
		defer background(ctx, p.ruled.Watch)()
	}
	letGo := func() {}
	if p.state != nil { // until the last request has been counted
		save := background(context.WithoutCancel(ctx), p.state.run)
		defer save()
		letGo = func() { p.state.letGo(save) }
	}
	if p.redis != nil {
		p.redis.Ping(ctx, OnFailNames[p.cfg.Redis.Fallback.OnFail])
	}
	defer background(ctx, p.meter.Run)()
	select {
	case err := <-front.failed:
		return err
	case err := <-back.failed:
		return err
	case <-ctx.Done():
		return p.drain(requests, front, cut)
	case <-p.cfg.Succession.Leave():
		return p.leave(requests, front, back, letGo, cut)
	}
}

// background runs f until the returned function is called, which waits for it.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// maxStreams bounds the requests that an HTTP/2 connection may have at the same time. Chromium and
// curl open as many.
const maxStreams = 100

// server is a running http.Server.
type server struct {
	*http.Server
	conns  *conns
	failed chan error // the error, if it ended without Close or Shutdown
}

// serve serves on a socket until end.
func (p *Proxy) serve(
	l net.Listener, h http.Handler, requests context.Context, b connBounds, cert *live.Certificate,
) *server {
	s := &server{
		Server: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: headerTimeout, // bounds clients that send a byte now and then
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn),
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

func (p *Proxy) announce(front, back *server) {
	scheme := "http://"
	if p.cert != nil {
		scheme = "https://"
	}
	attrs := []any{"listen", scheme + front.conns.Addr().String()}
	if p.cfg.Upstream != nil {
		attrs = append(attrs, "upstream", p.cfg.Upstream.String())
	}
	if back.conns != nil {
		attrs = append(attrs, "admin", "http://"+back.conns.Addr().String()+"/-/")
	}
	if p.cfg.DenyFile != "" {
		attrs = append(attrs, "denied", len(p.denied.Added()))
	}
	for _, r := range p.cfg.limited() {
		for _, l := range r.Limits {
			if r.Pattern != "" {
				attrs = append(attrs, "route", r.Pattern)
			}
			attrs = append(attrs, "limit", l.String(), "at_once", l.AtOnce())
		}
	}
	if p.full != nil {
		attrs = append(attrs, "overload", p.cfg.Overload.String())
	}
	p.Warn()
	if p.ruled != nil {
		attrs = append(attrs, "rules", p.ruled.Status().Rules, "domain", p.ruled.domain,
			"counting", p.ruled.counting())
	}
	p.cfg.Log.Info("serving", append(attrs, "by", p.cfg.By.String())...)
}

// Warn logs what of the current settings limits nobody, or denies everybody.
func (p *Proxy) Warn() {
	p = p.current.Load()
	for _, l := range p.cfg.Limits {
		if l.AtOnce() == 0 {
			p.cfg.Log.Warn("a limit admits nothing: every request is denied", "limit", l.String())
		}
	}
	warn := func(r netip.Prefix, text string) {
		if r.IsValid() && isWide(r) {
			p.cfg.Log.Warn(text, "range", r)
		}
	}
	for _, r := range p.cfg.Allow {
		warn(r, "--allow has more than a quarter of all addresses: their clients are not limited")
	}
	for _, r := range p.cfg.Trust {
		warn(r, "--trust has more than a quarter of all addresses: their clients choose their own")
	}
	for _, e := range p.denied.Added() {
		warn(e.Prefix,
			"the deny list has more than a quarter of all addresses: their clients are refused")
	}
}

// Sum says what the proxy has done since its start, for the end of a session.
func (p *Proxy) Sum() string {
	of := p.totals()
	var b strings.Builder
	all := of.Admitted + of.Denied + of.Failed
	fmt.Fprintf(&b, "%d requests in %s: %d admitted, %d denied, %d others", all,
		time.Since(p.started).Round(time.Second), of.Admitted, of.Denied, of.Failed)
	if top, _ := p.denials.Top(1); len(top) > 0 {
		fmt.Fprintf(&b, "; denied most: %s, %d times", p.cfg.By.shown(top[0].Key),
			top[0].N-top[0].Error)
	}
	return b.String()
}

// linger is how long connections without a request are read after the listener is closed: their
// clients may be sending one. A client that sends just when it ends is not answered, which HTTP/1
// cannot avoid; HTTP/2 tells it to repeat the request.
const linger = time.Second

// drain ends the connections, each after its next response, and waits for the requests in flight.
// The admin address keeps serving meanwhile, with a failing health check.
func (p *Proxy) drain(requests context.Context, front *server, cut func()) error {
	p = p.current.Load()
	p.stopping.Store(true) // responses close their connections
	p.cfg.Log.Info("stopping", "in_flight", p.open.Load())
	p.cfg.Succession.Stop()
	time.Sleep(p.cfg.DrainDelay) // load balancers need time to notice the failing health check
	deadline, cancel := context.WithTimeout(requests, p.cfg.Drain)
	defer cancel()
	front.conns.refuse()
	front.conns.awaitNone(deadline, linger)
	return p.ended(deadline, front.Shutdown(deadline), cut)
}

// finished waits for hijacked connections, which Shutdown does not: ReverseProxy still serves their
// WebSockets. It reports whether all ended before ctx.
func (p *Proxy) finished(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		p.inFlight.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
