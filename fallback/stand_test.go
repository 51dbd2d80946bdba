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
	"github.com/weirgo/weir/internal/testkit/ops"
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
// its counts. It catches up with a Backlog as redislimit does.
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

	runs, reconciles atomic.Uint64 // calls that decide; calls that catch up or charge
	calls            atomic.Uint64 // all calls
}

// call is a call of the server. The Result of do is nil unless that decides.
type call struct {
	ctx context.Context
	op  *weir.Op
	do  func() (*weir.Result, error)
}

// takes reports whether the call is to admit.
func (c call) takes() bool { return c.op.Verb == weir.OpTake }

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

// counting returns what counts now.
func (s *server) counting() weir.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return weir.CounterOf(s.inner)
}

func (s *server) About() *weir.About {
	a := s.counting().About().By(s)
	a.Reconciles = true
	a.Verbs = weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpReset, weir.OpResetPrefix,
		weir.OpCatchUp, weir.OpCharge)
	return a
}

func (s *server) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *server) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		s.one(ctx, op)
	}
}

func (s *server) one(ctx context.Context, op *weir.Op) {
	c := call{ctx, op, func() (*weir.Result, error) { return s.carryOut(ctx, op) }}
	if c.takes() {
		s.runs.Add(1)
	}
	if op.Backlog != nil || op.Verb == weir.OpCharge {
		s.reconciles.Add(1)
	}
	pass := s.passes
	if pass == nil {
		pass = func(c call) (*weir.Result, error) { return c.do() }
	}
	res, err := pass(c)
	op.Err = err
	if res != nil && err == nil {
		op.Result = *res
	}
	if c.takes() && op.Backlog == nil {
		s.mu.Lock()
		then := s.then
		s.then = nil
		s.mu.Unlock()
		if then != nil {
			then()
		}
	}
}

// carryOut does an op, unless the server is down.
func (s *server) carryOut(ctx context.Context, op *weir.Op) (*weir.Result, error) {
	s.calls.Add(1)
	inner := s.counting()
	s.mu.Lock()
	err, loses := s.err, s.loses
	s.mu.Unlock()
	if err != nil && !loses {
		return nil, err
	}
	of := *op
	switch op.Verb {
	case weir.OpReturn, weir.OpReset:
		s.takenBack(&op.Request)
	case weir.OpCharge:
		s.charge(&op.Request)
	}
	if op.Backlog != nil {
		failed := s.catchUp(ctx, inner, op)
		if failed != nil {
			return nil, errors.Join(failed, err)
		}
		of.Backlog = nil
	}
	if op.Verb != weir.OpCatchUp {
		do(ctx, inner, &of)
		op.Receipt, op.FullAt = of.Receipt, of.FullAt
		err = errors.Join(of.Err, err)
	}
	if of.Err != nil || op.Verb != weir.OpTake && op.Verb != weir.OpPeek && op.Verb != weir.OpResetPrefix {
		return nil, err
	}
	return &of.Result, err
}

// do does an op by c.
func do(ctx context.Context, c weir.Counter, op *weir.Op) {
	was := op.Counter
	op.Counter = c
	c.Do(ctx, []*weir.Op{op})
	op.Counter = was
}

func (s *server) charge(r *weir.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charged[r.Key] += r.Cost
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
	res, err := ops.Peek(ctx, s.counting(), &look)
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

// catchUp catches up with the backlog of an op: of an OpTake a debt is charged once.
func (s *server) catchUp(ctx context.Context, inner weir.Counter, op *weir.Op) (err error) {
	b, q := op.Backlog, op.Request
	if b.Reset {
		err = ops.Reset(ctx, inner, &op.Request)
	}
	if op.Verb == weir.OpCatchUp {
		if b.Reset {
			s.takenBack(&op.Request)
		}
		q.Cost = b.Total - min(b.Total, b.Charged)
	} else {
		q.Cost = s.debt(&op.Request, b)
	}
	if b.Counted != nil && (op.Verb == weir.OpCatchUp || s.seeds(&op.Request, b)) {
		before := s.counted(ctx, &op.Request)
		err = errors.Join(err, ops.Seed(ctx, inner, &op.Request, b.Counted))
		raised := s.counted(ctx, &op.Request) - before
		s.mu.Lock()
		if op.Verb == weir.OpTake {
			s.raised += raised
		}
		s.mu.Unlock()
	}
	if err == nil && q.Cost > 0 {
		s.charge(&q)
		err = ops.Charge(ctx, inner, &q)
	}
	return err
}

// bare is a primary with Run alone.
type bare struct{ weir.Strategy }

// around is a Counter around another one, which does each op by a function of its own: next does it
// as the other one.
type around struct {
	weir.Counter
	about *weir.About
	one   func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op))
}

func newAround(
	s weir.Strategy, one func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)),
) *around {
	a := &around{Counter: weir.CounterOf(s), one: one}
	a.about = a.Counter.About().By(a)
	return a
}

func (a *around) About() *weir.About { return a.about }

func (a *around) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, a, r)
}

func (a *around) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		a.one(ctx, op, func(ctx context.Context, op *weir.Op) { do(ctx, a.Counter, op) })
	}
}

// chargingOnly returns s as a Counter that catches up, but charges a debt whenever it is sent, has
// no Receipts, and says nothing else of itself.
func chargingOnly(s weir.Strategy) *around {
	verbs := weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpReset, weir.OpCatchUp,
		weir.OpCharge)
	var a *around
	a = newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if !verbs.Has(op.Verb) || op.Verb == weir.OpTake && op.Backlog != nil {
			op.Err = op.Unsupported(a.about)
			return
		}
		keep := op.Keep
		op.Keep = false
		next(ctx, op)
		op.Keep = keep
	})
	a.about = &weir.About{Of: a, Verbs: verbs}
	return a
}

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
	return weir.CounterOf(m.Named(name))
}

// limiterOn returns a limiter on a clock; nil is the real one, which is virtual in a bubble.
func limiterOn(t testing.TB, now func() time.Time) *weir.Limiter {
	// By default the hours of a bubble are thousands of sweeps.
	l, err := weir.New(weir.Config{Now: now, SweepEvery: time.Hour})
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
func ask(t testing.TB, f *fallback.Fallback, r weir.Request) (weir.Result, weir.Source) {
	t.Helper()
	res, by, err := runSource(context.Background(), f, &r)
	require.NoError(t, err)
	return *res, by
}

// runSource is the Run of s, and returns its source.
func runSource(
	ctx context.Context, s weir.Strategy, r *weir.Request,
) (*weir.Result, weir.Source, error) {
	op := ops.Do(ctx, s, weir.Op{Request: *r})
	if op.Err != nil {
		return nil, op.Source, op.Err
	}
	return &op.Result, op.Source, nil
}

func source(t testing.TB, f *fallback.Fallback, r weir.Request) weir.Source {
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
