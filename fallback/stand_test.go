package fallback_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

var errDown = errors.New("connection refused")

var (
	hundred = weir.Request{Key: "a", Limit: 100, Duration: time.Minute}
	hour    = weir.Request{Key: "a", Limit: 1 << 40, Duration: time.Hour}
)

// tripAtOnce opens the breaker at the first failure.
var tripAtOnce = fallback.Config{MinCalls: 1, Stall: -1}

// server is a primary shared by several instances. A test can take it down and restart it without
// its counts. It implements Reconcile as redislimit does.
type server struct {
	make func() weir.Strategy
	now  func() time.Time // set before the first call, as is passes
	// passes makes a call, by its do, and may fail or delay it. Nil: it makes it.
	passes func(call) (*weir.Result, error)

	mu      sync.Mutex
	inner   weir.Strategy        // guarded by mu, as are the fields below
	err     error                // the error of every call
	loses   bool                 // calls are carried out and then fail with err
	then    func()               // called once between a decision and its return
	seen    map[string]uint64    // the largest Total of each source and key
	back    map[string]time.Time // when something was last taken back, by key
	charged map[string]uint64    // the cost of all charges, by key
	raised  uint64               // by seeds

	runs, reconciles atomic.Uint64 // calls of Run and Reconcile; calls of Reconcile, Seed and Charge
	calls            atomic.Uint64 // all calls
}

// call is a call of a method of the server. The Result of do is nil unless that decides.
type call struct {
	ctx    context.Context
	method string
	r      *weir.Request // nil for ResetPrefix
	do     func() (*weir.Result, error)
}

// newServer returns a server that counts with the strategy that make returns.
func newServer(make func() weir.Strategy) *server {
	return &server{make: make, inner: make(), seen: map[string]uint64{}, back: map[string]time.Time{},
		charged: map[string]uint64{}, now: time.Now}
}

func (s *server) fails(err error)   { s.mu.Lock(); s.err, s.loses = err, false; s.mu.Unlock() }
func (s *server) losesAnswers()     { s.mu.Lock(); s.err, s.loses = errDown, true; s.mu.Unlock() }
func (s *server) afterRun(f func()) { s.mu.Lock(); s.then = f; s.mu.Unlock() }

func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.loses, s.inner = nil, false, s.make()
	s.seen, s.back = map[string]uint64{}, map[string]time.Time{}
}

// lose has the server count less than it did, without a failed call: n of r's caller, as a replica
// may, or as one does that was emptied.
func (s *server) lose(t testing.TB, r weir.Request, n uint64) {
	s.restart()
	if r.Cost = n; n > 0 {
		_, err := s.inner.Run(t.Context(), &r)
		require.NoError(t, err)
	}
}

// Unwrap returns what counts now.
func (s *server) Unwrap() weir.Strategy { s.mu.Lock(); defer s.mu.Unlock(); return s.inner }

// serve calls f, unless the server is down.
func (s *server) serve(
	ctx context.Context, method string, r *weir.Request,
	f func(weir.Strategy) (*weir.Result, error),
) (*weir.Result, error) {
	c := call{ctx, method, r, func() (*weir.Result, error) {
		s.calls.Add(1)
		s.mu.Lock()
		inner, err, loses := s.inner, s.err, s.loses
		s.mu.Unlock()
		if err != nil && !loses {
			return nil, err
		}
		res, failed := f(inner)
		return res, errors.Join(failed, err)
	}}
	if s.passes == nil {
		return c.do()
	}
	return s.passes(c)
}

func (s *server) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	s.runs.Add(1)
	res, err := s.serve(ctx, "Run", r, func(inner weir.Strategy) (*weir.Result, error) {
		return inner.Run(ctx, r)
	})
	s.mu.Lock()
	then := s.then
	s.then = nil
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return res, err
}

func (s *server) Admit(
	ctx context.Context, r *weir.Request,
) (res *weir.Result, giveBack weir.Return, err error) {
	s.runs.Add(1)
	var back weir.Return
	res, err = s.serve(ctx, "Admit", r, func(inner weir.Strategy) (res *weir.Result, err error) {
		res, back, err = inner.(weir.Admitter).Admit(ctx, r)
		return res, err
	})
	return res, func(ctx context.Context, cost uint64) error {
		_, err := s.serve(ctx, "Refund", r, func(weir.Strategy) (*weir.Result, error) {
			s.takenBack(r)
			return nil, back(ctx, cost)
		})
		return err
	}, err
}

func (s *server) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.serve(ctx, "Peek", r, func(inner weir.Strategy) (*weir.Result, error) {
		return inner.(weir.Peeker).Peek(ctx, r)
	})
}

func (s *server) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	_, err := s.serve(ctx, "Refund", r, func(inner weir.Strategy) (*weir.Result, error) {
		s.takenBack(r)
		return nil, inner.(weir.Refunder).Refund(ctx, r, taken)
	})
	return err
}

func (s *server) Reset(ctx context.Context, r *weir.Request) error {
	_, err := s.serve(ctx, "Reset", r, func(inner weir.Strategy) (*weir.Result, error) {
		s.takenBack(r)
		return nil, inner.(weir.Resetter).Reset(ctx, r)
	})
	return err
}

func (s *server) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (n int, err error) {
	_, err = s.serve(ctx, "ResetPrefix", nil, func(inner weir.Strategy) (*weir.Result, error) {
		n, err = inner.(weir.PrefixResetter).ResetPrefix(ctx, prefix, progress)
		return nil, err
	})
	return n, err
}

func (s *server) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	s.reconciles.Add(1)
	_, err := s.serve(ctx, "Seed", r, func(inner weir.Strategy) (*weir.Result, error) {
		return nil, inner.(weir.Seeder).Seed(ctx, r, counted)
	})
	return err
}

func (s *server) Charge(ctx context.Context, r *weir.Request) error {
	s.reconciles.Add(1)
	_, err := s.serve(ctx, "Charge", r, func(inner weir.Strategy) (*weir.Result, error) {
		return nil, s.charge(ctx, inner, r)
	})
	return err
}

func (s *server) charge(ctx context.Context, inner weir.Strategy, r *weir.Request) error {
	s.mu.Lock()
	s.charged[r.Key] += r.Cost
	s.mu.Unlock()
	return inner.(weir.Charger).Charge(ctx, r)
}

// takenBack records that something of r's caller was taken back.
func (s *server) takenBack(r *weir.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back[r.Key] = s.now()
}

// seeds reports whether the count is raised to that of b: nothing was taken back since.
func (s *server) seeds(r *weir.Request, b *weir.Backlog) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.back[r.Key]
	return b.Counted != nil && (!known || at.Before(b.CountedAt))
}

// counted returns the count of r's caller.
func (s *server) counted(ctx context.Context, r *weir.Request) uint64 {
	look := *r
	look.Cost = 1
	res, err := s.inner.(weir.Peeker).Peek(ctx, &look)
	if err != nil {
		panic(err)
	}
	if res.Allowed() {
		res.TotalRequests--
	}
	return res.TotalRequests
}

// debt returns the part of the backlog b that has not been charged.
func (s *server) debt(r *weir.Request, b *weir.Backlog) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := b.Source + r.Key + r.Duration.String()
	from := max(b.Charged, s.seen[k])
	s.seen[k] = max(from, b.Total)
	return b.Total - min(b.Total, from)
}

func (s *server) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	s.runs.Add(1)
	s.reconciles.Add(1)
	return s.serve(ctx, "Reconcile", r, func(inner weir.Strategy) (_ *weir.Result, err error) {
		if b.Reset {
			err = inner.(weir.Resetter).Reset(ctx, r)
		}
		if s.seeds(r, b) {
			before := s.counted(ctx, r)
			err = inner.(weir.Seeder).Seed(ctx, r, b.Counted)
			s.raised += s.counted(ctx, r) - before
		}
		q := *r
		if q.Cost = s.debt(r, b); err == nil && q.Cost > 0 {
			err = s.charge(ctx, inner, &q)
		}
		if err != nil {
			return nil, err
		}
		return inner.Run(ctx, r)
	})
}

// bare is a primary with Run alone.
type bare struct{ weir.Strategy }

// charging is a strategy with Seed and Charge but neither Reconcile nor Admit.
type charging struct{ chargeable }

type chargeable interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.Seeder
	weir.Charger
}

func chargingOnly(s weir.Strategy) charging { return charging{s.(chargeable)} }

type front func(*server) weir.Strategy

func bareFront(s *server) weir.Strategy     { return bare{s} }
func whole(s *server) weir.Strategy         { return s }
func chargingFront(s *server) weir.Strategy { return chargingOnly(s) }

// fronts are the kinds of primary that debts can be charged to.
var fronts = map[string]front{"reconciles": whole, "seeds and charges": chargingFront}

// fleet is a service of several instances with one server and one clock.
type fleet struct {
	clock     *weirtest.Clock
	server    *server
	instances []*fallback.Fallback
}

// strategyOf returns one strategy of a Limiter.
type strategyOf func(*weir.Limiter) weir.Strategy

func fixedWindow(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }

func strategies() map[string]strategyOf {
	return map[string]strategyOf{
		"FixedWindow":   fixedWindow,
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"SlidingLog":    func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
	}
}

func newFleet(t testing.TB, n int, of strategyOf, cfg fallback.Config, to front) *fleet {
	f := &fleet{clock: weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))}
	f.server = newServer(func() weir.Strategy { return of(limiterOn(t, f.clock.Now)) })
	f.server.now = f.clock.Now
	cfg.Now = f.clock.Now
	if cfg.InstancesFunc == nil {
		cfg.Instances = n
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute // in real time; the fleet's clock is virtual
	}
	for range n {
		local := of(limiterOn(t, f.clock.Now))
		f.instances = append(f.instances, newFallback(t, to(f.server), local, cfg))
	}
	return f
}

// heal repairs the server and waits until the breakers of all instances have closed.
func (f *fleet) heal(t testing.TB) {
	t.Helper()
	f.server.fails(nil)
	f.clock.Advance(2 * time.Second)
	for _, i := range f.instances {
		closes(t, i)
	}
}

// closes starts a probe and waits until it has closed the breaker.
func closes(t testing.TB, f *fallback.Fallback) {
	t.Helper()
	trigger := weir.Request{Key: "trigger", Duration: time.Hour}
	require.Eventually(t, func() bool {
		ask(t, f, trigger)
		return f.Stats().State == fallback.Closed
	}, 10*time.Second, time.Millisecond)
}

// probeFails starts a probe and waits until it has failed.
func probeFails(t testing.TB, f *fallback.Fallback) {
	t.Helper()
	before := f.Stats().Probes
	require.Eventually(t, func() bool {
		ask(t, f, weir.Request{Key: "trigger", Duration: time.Hour})
		s := f.Stats()
		return s.Probes > before && s.State == fallback.Open
	}, 10*time.Second, time.Millisecond)
}

// named returns a strategy that counts for a limit with a name.
func named(name string, s weir.Strategy, n uint64, d time.Duration) weir.Strategy {
	m, err := weir.NewLimit(s, n, d)
	if err != nil {
		panic(err)
	}
	return m.Named(name).Unwrap()
}

// limiterOn returns a limiter on a clock; nil is the real one, which is virtual in a bubble.
func limiterOn(t testing.TB, now func() time.Time) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// local returns a fixed window on the real clock.
func local(t testing.TB) weir.Strategy { return limiterOn(t, nil).FixedWindow() }

func newFallback(
	t testing.TB, primary, local weir.Strategy, cfg fallback.Config,
) *fallback.Fallback {
	f, err := fallback.New(primary, local, cfg)
	require.NoError(t, err)
	return f
}

// ask returns the decision on r and its source.
func ask(t testing.TB, f *fallback.Fallback, r weir.Request) (weir.Result, fallback.Source) {
	t.Helper()
	res, by, err := f.RunSource(context.Background(), &r)
	require.NoError(t, err)
	return *res, by
}

func source(t testing.TB, f *fallback.Fallback, r weir.Request) fallback.Source {
	t.Helper()
	_, by := ask(t, f, r)
	return by
}

// most makes requests until one is denied, and returns the cost admitted.
func most(t testing.TB, f *fallback.Fallback, r weir.Request) (n uint64) {
	t.Helper()
	for {
		if res, _ := ask(t, f, r); !res.Allowed() {
			return n
		}
		n += max(1, r.Cost)
	}
}

// with returns cfg with the settings of tripAtOnce.
func with(cfg fallback.Config) fallback.Config {
	cfg.MinCalls, cfg.Stall = tripAtOnce.MinCalls, tripAtOnce.Stall
	return cfg
}
