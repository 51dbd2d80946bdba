package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Proxy is a limiting reverse proxy. Make one with New.
type Proxy struct {
	cfg     Config
	ip      httplimit.IP
	limiter *weir.Limiter
	make    strategies
	routes  *routes
	denied  *httplimit.DenyList
	stats   httplimit.Stats
	worst   *topk
	meter   meter
	table   tableFigures
	started time.Time

	handler http.Handler // what Listen serves
	admin   http.Handler // what Admin.Addr serves

	inFlight sync.WaitGroup // requests, those whose connections were hijacked too
	open     atomic.Int64   // how many these are
	stopping atomic.Bool
}

// worstKeys is how many of the callers who were denied are counted. One that makes up more than a thousandth of all
// denials cannot hide.
const worstKeys = 1000

// New makes a Proxy, which serves nobody until Run. It fails if cfg cannot be.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	limiter, err := weir.New(cfg.Table)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, ip: cfg.ip(), limiter: limiter, worst: newTopK(worstKeys), started: time.Now()}
	p.meter.stats = &p.stats
	if err := p.build(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *Proxy) build() (err error) {
	p.make = strategies{limiter: p.limiter}
	if p.cfg.Redis.URL != "" {
		if p.make.shared, err = newShared(p.cfg.Redis, p.cfg.Log); err != nil {
			return err
		}
	}
	if p.routes, err = newRoutes(p.cfg.Routes); err != nil {
		return err
	}
	p.denied = httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: p.cfg.MaxDeny})
	for _, e := range p.cfg.Deny {
		if err := p.denied.Add(e); err != nil {
			return err
		}
	}
	next := builtIn(p.cfg.Limits[0])
	if p.cfg.Upstream != nil {
		next = p.upstream(p.cfg.Upstream)
	}
	guarded, err := p.guard(next)
	if err != nil {
		return err
	}
	p.handler = p.observe(guarded)
	p.admin = p.adminHandler()
	return nil
}

// close ends what New made.
func (p *Proxy) close() error {
	var err error
	if p.make.shared != nil {
		err = p.make.shared.close()
	}
	return errors.Join(err, p.limiter.Close())
}

// Run serves until ctx ends, and then until the requests in flight are done or Drain is over. It returns nil if none of
// them had to be cut off. It can be called once.
func (p *Proxy) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	// Requests live longer than ctx, but not longer than Run.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()

	front, err := p.listen(p.cfg.Listen, p.handler, requests)
	if err != nil {
		return err
	}
	defer front.end()
	back := &server{}
	if p.cfg.Admin.Addr != "" {
		if back, err = p.listen(p.cfg.Admin.Addr, p.admin, requests); err != nil {
			return err
		}
		defer back.end()
	}
	p.announce(front, back)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.meter.tick()
		case err := <-front.failed:
			return err
		case err := <-back.failed:
			return err
		case <-ctx.Done():
			return p.drain(requests, front, cut)
		}
	}
}

// server is an http.Server at work.
type server struct {
	*http.Server
	addr   net.Addr
	failed chan error // why it ended, unless it was told to
}

func (p *Proxy) listen(addr string, h http.Handler, requests context.Context) (*server, error) {
	l, err := (&net.ListenConfig{}).Listen(requests, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &server{
		Server: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 10 * time.Second, // a client that sends a byte now and then must not hold a connection
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn),
			BaseContext:       func(net.Listener) context.Context { return requests },
		},
		addr:   l.Addr(),
		failed: make(chan error, 1),
	}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	return s, nil
}

// end cuts off what the server still serves.
func (s *server) end() { _ = s.Close() } // a listener that was closed before

func (p *Proxy) announce(front, back *server) {
	attrs := []any{"listen", "http://" + front.addr.String()}
	if p.cfg.Upstream != nil {
		attrs = append(attrs, "upstream", p.cfg.Upstream.String())
	}
	if back.addr != nil {
		attrs = append(attrs, "admin", "http://"+back.addr.String()+"/-/")
	}
	for _, l := range p.cfg.Limits {
		attrs = append(attrs, "limit", l.Rule.String())
	}
	p.cfg.Log.Info("serving", append(attrs, "by", p.cfg.By.String())...)
}

// drain lets the requests in flight finish. The admin address serves on meanwhile, and says that it stops.
func (p *Proxy) drain(requests context.Context, front *server, cut func()) error {
	p.stopping.Store(true)
	p.cfg.Log.Info("stopping", "in_flight", p.open.Load())
	deadline, cancel := context.WithTimeout(requests, p.cfg.Drain)
	defer cancel()
	if front.Shutdown(deadline) == nil && p.finished(deadline) {
		p.cfg.Log.Info("stopped")
		return nil
	}
	left := p.open.Load()
	cut()
	p.cfg.Log.Warn("stopped", "cut_off", left)
	if left == 0 {
		return nil // it was connections that had not asked for anything yet
	}
	return fmt.Errorf("%d requests were still in flight after %v", left, p.cfg.Drain)
}

// finished waits for the connections that were hijacked, which Shutdown does not: WebSockets, which ReverseProxy still
// serves. It reports whether all were done before ctx was.
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
