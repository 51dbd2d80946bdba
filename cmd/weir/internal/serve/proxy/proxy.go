package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/atomicfile"
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

	fields *clientFields

	concurrency httplimit.Policy // on requests in flight of one caller; zero: none
	full        *overload.Guard  // of the upstream; nil: none

	handler http.Handler
	admin   http.Handler
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
	p.meter.Totals = func() live.Sums { return p.tally.sums(p.served.Failed.Load()) }
	p.meter.Second = func() { p.served.Tick(p.open.Load()) }
	if err := p.build(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// newProxy returns a Proxy of a valid configuration without its handlers.
func newProxy(c *Config, of *process) *Proxy {
	p := &Proxy{
		process: of, cfg: *c, ip: c.ip(),
		routes: c.routes, held: held{table: c.routes, routed: make(map[string]*routed)}}
	p.fields = newClientFields(&p.cfg, p.ip)
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
	p.transport = transportOf(p)
	if err := setConcurrency(p); err != nil {
		return err
	}
	if err := setOverload(p); err != nil {
		return err
	}
	next, err := p.limited()
	if err != nil {
		return err
	}
	next, err = guard{p}.boundInFlight(next)
	if err != nil {
		return err
	}
	p.handler = occupy(journal{p}.observe(refuse(p, p.cfg.Bodies.bound(next))))
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
	b.exempt = p.fields.trustsAddr
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

// limited returns the upstream or the built-in page behind the limits.
func (p *Proxy) limited() (http.Handler, error) {
	text := ""
	if len(p.cfg.Limits) > 0 {
		text = p.cfg.Limits[0].Limit
	}
	next := builtIn(text)
	if p.cfg.Upstream != nil {
		next = (&upstream{&p.cfg, p.via, p.fields, p.transport}).handler()
	}
	if p.cfg.AddressPath != "" {
		next = p.showAddress(next)
	}
	return guard{p}.handler(next)
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
	front := newServer(frontSocket, p.Handler(), requests, p.connBounds(), p.cert, p.cfg.Log)
	defer front.end()
	p.conns.Store(front.conns)
	back := &server{}
	if backSocket != nil {
		admin := p.now(func(p *Proxy) http.Handler { return p.admin })
		back = newServer(backSocket, admin, requests,
			connBounds{max: p.cfg.connBounds().admin, send: time.Minute}, nil, p.cfg.Log)
		defer back.end()
	}
	run := &serving{p, requests, cut, front, back}
	run.announce()
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
		return run.drain()
	case <-p.cfg.Succession.Leave():
		return run.leave(letGo)
	}
}

// succeed has the process before leave, and takes over from it: the counts, once it has decided its
// last request, and the deny list. Connections wait in the queue of the socket meanwhile. If it
// fails, the process before goes on.
func (p *Proxy) succeed(ctx context.Context) error {
	next := p.cfg.Succession
	var held error // why the state file is not open yet
	if next.Succeeds() && p.cfg.StateFile != "" {
		held = p.openState()
		if held != nil && !errors.Is(held, atomicfile.ErrLocked) {
			return held
		}
	}
	if err := next.Ready(); err != nil {
		return err
	}
	// Nobody else serves from here on, so that no error ends this process.
	if held != nil {
		if err := retryLocked(ctx, p.openState); err != nil {
			p.cfg.Log.Error("serving without the counts of the process before, and saving none",
				"file", p.cfg.StateFile, "error", err.Error())
		}
	}
	if next.Succeeds() && p.cfg.DenyFile != "" { // it may have changed since New
		if err := p.denied.load(p.current.Load().cfg.Deny, p.cfg.Log); err != nil {
			p.cfg.Log.Error("the deny list is as it was at the start", "error", err.Error())
		}
	}
	return nil
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
	of := p.tally.sums(0)
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
