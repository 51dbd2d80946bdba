package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// Config configures a Server. Paths or Rules, and GRPC must be set.
type Config struct {
	Paths  []string // files and directories of rules
	Loader rules.Loader
	Engine rules.Config // how they count

	// Rules, if not nil, calls accept with rules from elsewhere until ctx ends. The Server decides
	// nothing before the first ones.
	Rules      func(ctx context.Context, accept func(*rules.Set, error) error)
	AllowEmpty bool // Rules may take all limits away

	GRPC, HTTP, Admin string // addresses; HTTP and Admin may be empty
	AdminRemote       bool   // Admin may be other than a loopback address
	AdminToken        string // for requests that inspect or change counts; empty refuses them
	TLS               *tls.Config

	Metrics  []prometheus.Collector // of the Engine's Strategies
	Deciding func() []live.Deciding // who decides on their limits; nil: they are not shared
	Answers  Answers

	// MaxDescriptors bounds the descriptors of a request, which is refused if it has more; 0: none.
	// It is the value of --max-descriptors.
	MaxDescriptors int

	Connections keepalive.ServerParameters // of gRPC; zero fields mean those of grpc-go

	// Started is called once the Server serves, with the context of Run. Nil means none.
	Started func(context.Context)

	Drain time.Duration // maximum duration of requests after a stop
	Log   *slog.Logger  // nil means no log
}

// healthName is the service name that Envoy's rate limit service uses in health checks.
const healthName = "ratelimit"

// Server is the decision server.
type Server struct {
	cfg      Config
	live     *live.Rules
	gate     *live.Gate
	tally    *tally
	meter    live.Meter
	started  time.Time
	service  *service
	registry *prometheus.Registry
	health   *health.Server
	grpc     *grpc.Server

	grpcAt, httpAt, adminAt net.Listener
}

// noEnd is why a rule for requests in flight is refused.
const noEnd = "the unit in_flight does not work for Envoy, whose protocol does not report that " +
	"a request ends; weir proxy and rules.Middleware hold to it: put the rule in a file for them"

// New loads the rules and listens. It fails if the rules have a mistake, since there are no older
// rules to use.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Admin != "" && !cfg.AdminRemote {
		if _, err := live.CheckAdmin(cfg.Admin, false, "see the denied callers"); err != nil {
			return nil, err
		}
	}
	s := &Server{cfg: cfg, registry: prometheus.NewRegistry(), health: health.NewServer(),
		started: time.Now()}
	var err error
	s.live, err = live.New(live.Config{
		Paths: cfg.Paths, Loader: cfg.Loader, Engine: cfg.Engine, Log: cfg.Log,
		AllowEmpty: cfg.AllowEmpty,
		Check:      func(set *rules.Set) error { return cli.RefuseInFlight(set, "", noEnd) },
	})
	if err != nil {
		return nil, err
	}
	s.tally = newTally(s.live.Figures, cfg.Log)
	s.meter.Totals = s.tally.totals
	s.service = newService(s.live.Engine, &cfg, s.tally)
	s.service.waiting.Store(cfg.Rules != nil)
	s.live.Register(s.registry, namespace+"config")
	s.registry.MustRegister(live.Metrics(s.tally.collect), live.Metrics(s.collectRules),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.registry.MustRegister(cfg.Metrics...)
	s.gate, err = live.NewGate(cfg.AdminToken, cfg.Log)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.newGRPC()
	return s, nil
}

// close releases everything that New made except the listeners.
func (s *Server) close() error { return errors.Join(s.live.Engine.Close(), s.gate.Close()) }

func (s *Server) listen() (err error) {
	listen := func(flag, addr string) (l net.Listener) {
		if err == nil && addr != "" {
			l, err = live.Listen(context.Background(), flag, addr)
		}
		return l
	}
	s.grpcAt, s.httpAt, s.adminAt = listen("grpc", s.cfg.GRPC), listen("http", s.cfg.HTTP),
		listen("admin", s.cfg.Admin)
	for _, l := range []net.Listener{s.grpcAt, s.httpAt, s.adminAt} {
		if err != nil && l != nil {
			_ = l.Close()
		}
	}
	return err
}

// pingEvery is how often a client may send keepalive pings, on idle connections too. By default
// grpc-go closes the connection of a client that pings more than once in five minutes; proxies do
// so.
const pingEvery = 5 * time.Second

// streamWorkers is the number of goroutines that are kept for calls. They save up to a third of a
// call's instructions: the stack of a new goroutine is too small for a call, and is copied. Of more
// calls at once, each starts a goroutine.
const streamWorkers = 64

func (s *Server) newGRPC() {
	options := []grpc.ServerOption{
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveParams(s.cfg.Connections),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: pingEvery, PermitWithoutStream: true,
		}),
	}
	if s.cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	pb.RegisterRateLimitServiceServer(s.grpc, s.service)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	status := healthpb.HealthCheckResponse_SERVING
	if s.service.waiting.Load() {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus(healthName, status)
}

// Addresses are the addresses on which a Server listens; "" if it does not.
type Addresses struct{ GRPC, HTTP, Admin string }

// Addresses returns the addresses on which s listens.
func (s *Server) Addresses() Addresses {
	at := func(l net.Listener) string {
		if l == nil {
			return ""
		}
		return l.Addr().String()
	}
	return Addresses{at(s.grpcAt), at(s.httpAt), at(s.adminAt)}
}

// Reload loads the rules again, whether or not their files have changed.
func (s *Server) Reload() error { return s.live.Reload() }

// Run serves until ctx ends, and then waits up to Drain for requests in flight. It reloads changed
// rules meanwhile.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := s.Addresses()
	s.cfg.Log.Info("serving", "grpc", at.GRPC, "http", at.HTTP, "admin", at.Admin,
		"rules", s.live.Engine.Set().Len())
	failed := make(chan error, 3)
	go func() { failed <- s.grpc.Serve(s.grpcAt) }()
	var servers []*http.Server
	for l, h := range map[net.Listener]http.Handler{s.httpAt: s.public(), s.adminAt: s.admin()} {
		if l == nil {
			continue
		}
		server := &http.Server{Handler: h, ReadTimeout: s.readTimeout(), IdleTimeout: 2 * time.Minute}
		servers = append(servers, server)
		go func() { failed <- server.Serve(l) }()
	}
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ctx) })
	if s.cfg.Started != nil {
		watching.Go(func() { s.cfg.Started(ctx) })
	}
	watching.Go(func() { s.meter.Run(ctx) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	watching.Wait()
	return errors.Join(err, s.stop(servers))
}

// watch keeps the rules up to date until ctx ends.
func (s *Server) watch(ctx context.Context) {
	if s.cfg.Rules == nil {
		s.live.Watch(ctx)
		return
	}
	s.cfg.Rules(ctx, func(set *rules.Set, err error) error {
		err = s.live.Accept(set, err)
		if err == nil && s.service.waiting.CompareAndSwap(true, false) {
			s.health.SetServingStatus(healthName, healthpb.HealthCheckResponse_SERVING)
		}
		return err
	})
}

// readTimeout bounds the time for sending a request, with its body. A stop waits for the rest of a
// request, so it is less than Drain.
func (s *Server) readTimeout() time.Duration {
	return max(time.Second, min(10*time.Second, s.cfg.Drain/2))
}

// stop shuts down gracefully: health checks fail first, so that no new requests arrive.
func (s *Server) stop(servers []*http.Server) error {
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	var errs []error
	for _, server := range servers {
		err := server.Shutdown(ctx)
		if err != nil {
			_ = server.Close() // which ends the contexts of its requests, as Stop of gRPC does
		}
		errs = append(errs, err)
	}
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		errs = append(errs, fmt.Errorf("requests were still under way after %v", s.cfg.Drain))
	}
	return errors.Join(errs...)
}

// public returns the handler of the HTTP port.
func (s *Server) public() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", s.service.serveJSON)
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, r *http.Request) {
		answer, err := s.health.Check(r.Context(), &healthpb.HealthCheckRequest{Service: healthName})
		if err != nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK")) // an error means that the client disconnected
	})
	return mux
}

// collectRules collects the number of the rules.
func (s *Server) collectRules(ch chan<- prometheus.Metric) {
	st := s.live.Status()
	ch <- prometheus.MustNewConstMetric(descRules, prometheus.GaugeValue, float64(st.Rules),
		live.Short(st.Version))
}

// admin returns the handler of the admin port: the status page, the metrics, and the requests that
// inspect or change the rules and counts.
//
// A browser on the same machine can send requests here on behalf of any site. So the Host must be
// an address or localhost, and a request that inspects or changes a count must carry the token,
// which no site knows. The page, the rules and the metrics need none.
func (s *Server) admin() http.Handler {
	mux := http.NewServeMux()
	live.AddPage(mux)
	mux.HandleFunc("GET /-/stats", s.serveStats)
	mux.HandleFunc("GET /rlconfig", s.serveRules)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.Handle("POST /-/reload", s.tokenOnly(s.live.ServeReload))
	mux.Handle("GET /-/explain", s.tokenOnly(func(w http.ResponseWriter, r *http.Request) {
		s.live.ServeExplain(w, r, s.tally.denied)
	}))
	mux.Handle("DELETE /-/caller", s.tokenOnly(s.live.ServeReset))
	mux.Handle("DELETE /-/callers", s.tokenOnly(s.live.ServeResetAll))
	return live.Known(nil, "This server is known by its address and as localhost only.",
		live.Secure(mux))
}

// tokenOnly passes only requests with the admin token. Without a configured token it refuses all.
func (s *Server) tokenOnly(next http.HandlerFunc) http.Handler {
	var origin http.CrossOriginProtection // browsers that know the token bring it for any site
	return origin.Handler(s.gate.Wrap(next))
}

// serveRules lists the current rules in the format of Envoy's service.
func (s *Server) serveRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for r := range s.live.Engine.Set().All() {
		_, _ = w.Write([]byte(clean(r.Domain + ": " + r.String() + "\n")))
	}
}

// serveStats answers with what the page shows.
func (s *Server) serveStats(w http.ResponseWriter, r *http.Request) {
	window, err := traffic.ParseWindow(r.FormValue("window"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	shown := live.NewShown("weir serve", s.started, &s.meter, s.tally.denied, window,
		screen.Printable)
	total := s.tally.totals()
	shown.Requests = map[string]uint64{
		httplimit.Admitted.String(): total.Admitted, httplimit.Denied.String(): total.Denied,
		httplimit.Failed.String(): total.Failed,
	}
	shown.Rules = s.live.Shown("")
	if s.cfg.Deciding != nil {
		shown.Deciding = s.cfg.Deciding()
	}
	live.WriteJSON(w, shown)
}
