package fallback_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

// server is a primary that a test can take down, that several instances share, and that can come back empty.
type server struct {
	weir.Strategy
	make func() weir.Strategy

	mu   sync.Mutex
	err  error         // guarded by mu; what every call fails with
	runs atomic.Uint64 // asked of it, in vain or not
	told atomic.Uint64 // seeds and charges

	then func() // what happens between a decision and its arrival; for one caller
}

// newServer is a server that counts with what make makes.
func newServer(make func() weir.Strategy) *server { return &server{Strategy: make(), make: make} }

func (s *server) fails(err error) { s.mu.Lock(); s.err = err; s.mu.Unlock() }
func (s *server) restart()        { s.mu.Lock(); s.err, s.Strategy = nil, s.make(); s.mu.Unlock() }

func (s *server) up() (weir.Strategy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Strategy, s.err
}

func (s *server) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	s.runs.Add(1)
	up, err := s.up()
	if err != nil {
		return nil, err
	}
	res, err := up.Run(ctx, r)
	if s.then != nil {
		s.then()
	}
	return res, err
}

func (s *server) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	up, err := s.up()
	if err != nil {
		return nil, err
	}
	return up.(weir.Peeker).Peek(ctx, r)
}

func (s *server) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	up, err := s.up()
	if err != nil {
		return err
	}
	return up.(weir.Refunder).Refund(ctx, r, taken)
}

func (s *server) Reset(ctx context.Context, r *weir.Request) error {
	up, err := s.up()
	if err != nil {
		return err
	}
	return up.(weir.Resetter).Reset(ctx, r)
}

func (s *server) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	s.told.Add(1)
	up, err := s.up()
	if err != nil {
		return err
	}
	return up.(weir.Seeder).Seed(ctx, r, counted)
}

func (s *server) Charge(ctx context.Context, r *weir.Request) error {
	s.told.Add(1)
	up, err := s.up()
	if err != nil {
		return err
	}
	return up.(weir.Charger).Charge(ctx, r)
}

// bare is a primary that offers nothing beside Run.
type bare struct{ weir.Strategy }

// fleet is instances of one service, in front of one server, on one clock.
type fleet struct {
	clock     *weirtest.Clock
	server    *server
	instances []*fallback.Fallback
}

// strategyOf is one of the strategies of a Limiter.
type strategyOf func(*weir.Limiter) weir.Strategy

func fixedWindow(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }

func newFleet(t testing.TB, n int, of strategyOf, cfg fallback.Config, front func(weir.Strategy) weir.Strategy) *fleet {
	f := &fleet{clock: weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))}
	f.server = newServer(func() weir.Strategy { return of(limiterOn(t, f.clock)) })
	cfg.Instances, cfg.Now = n, f.clock.Now
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute // of real time, which does not matter here
	}
	for range n {
		f.instances = append(f.instances, newFallback(t, front(f.server), of(limiterOn(t, f.clock)), cfg))
	}
	return f
}

func whole(s weir.Strategy) weir.Strategy     { return s }
func bareFront(s weir.Strategy) weir.Strategy { return bare{s} }

// ask returns whether r is admitted and by whom.
func ask(t testing.TB, f *fallback.Fallback, r weir.Request) (weir.Result, fallback.Source) {
	t.Helper()
	res, by, err := f.RunSource(context.Background(), &r)
	if err != nil {
		t.Fatal(err)
	}
	return *res, by
}

// most asks until it is denied, and returns how many were admitted.
func most(t testing.TB, f *fallback.Fallback, r weir.Request) (n uint64) {
	t.Helper()
	for {
		if res, _ := ask(t, f, r); !res.Allowed() {
			return n
		}
		n += max(1, r.Cost)
	}
}
