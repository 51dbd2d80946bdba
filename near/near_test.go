package near_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

var errDown = errors.New("connection refused")

var hundred = weir.Request{Key: "a", Limit: 100, Duration: time.Minute}

// remote is a strategy shared by several instances that counts its calls of Run.
type remote struct {
	weir.Strategy
	calls atomic.Uint64

	mu   sync.Mutex
	err  error  // guarded by mu
	then func() // guarded by mu; called once, between the next decision and its return
}

func (s *remote) fails(err error)      { s.mu.Lock(); s.err = err; s.mu.Unlock() }
func (s *remote) afterRun(then func()) { s.mu.Lock(); s.then = then; s.mu.Unlock() }

func (s *remote) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	s.calls.Add(1)
	s.mu.Lock()
	err, then := s.err, s.then
	s.then = nil
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	res, err := s.Strategy.Run(ctx, r)
	if then != nil {
		then()
	}
	return res, err
}

func (s *remote) Unwrap() weir.Strategy { return s.Strategy }

func (s *remote) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.Strategy.(weir.Peeker).Peek(ctx, r)
}

func (s *remote) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	return s.Strategy.(weir.Refunder).Refund(ctx, r, taken)
}

func (s *remote) Reset(ctx context.Context, r *weir.Request) error {
	return s.Strategy.(weir.Resetter).Reset(ctx, r)
}

func (s *remote) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (int, error) {
	return s.Strategy.(weir.PrefixResetter).ResetPrefix(ctx, prefix, progress)
}

func (s *remote) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	return s.Strategy.(weir.Seeder).Seed(ctx, r, counted)
}

// bare is a strategy with Run alone.
type bare struct{ weir.Strategy }

func (b bare) Unwrap() weir.Strategy { return b.Strategy }

// wrapper has the methods of Leases and Denials.
type wrapper interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.PrefixResetter
	weir.Seeder
	weir.Charger
	weir.Reconciler
	Warm(ctx context.Context, r *weir.Request) error
}

func limiterOn(t testing.TB, clock *weirtest.Clock) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func minute(t testing.TB) (*weirtest.Clock, *remote) {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	return clock, &remote{Strategy: limiterOn(t, clock).FixedWindow()}
}

func ask(t testing.TB, s weir.Strategy, r weir.Request) weir.Result {
	t.Helper()
	res, err := s.Run(context.Background(), &r)
	require.NoError(t, err)
	return *res
}

// most makes requests until one is denied, and returns the cost admitted.
func most(t testing.TB, s weir.Strategy, r weir.Request) (n uint64) {
	t.Helper()
	for ask(t, s, r).Allowed() {
		n += max(1, r.Cost)
	}
	return n
}

func twice(limit uint64) uint64 {
	if limit > 1<<62 {
		return limit
	}
	return 2 * limit
}

// skips returns laws that are skipped for a reason.
func skips(reason string, laws ...string) map[string]string {
	skip := map[string]string{}
	for _, law := range laws {
		skip[law] = reason
	}
	return skip
}

func TestConformance(t *testing.T) {
	laws := weirtest.Laws{Span: twice, Aligned: true, Histories: slow.N(3, 20, 100)}
	clockBack := map[string]string{"ClockBack": "a denial is good by the clock"}
	fixed := func(t testing.TB, c *weirtest.Clock) weir.Strategy {
		return limiterOn(t, c).FixedWindow()
	}
	log := func(t testing.TB, c *weirtest.Clock) weir.Strategy { return limiterOn(t, c).SlidingLog() }
	lease := func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewLeases(s, near.LeaseConfig{Block: 8, Skew: -1, Now: c.Now})
	}
	denials := func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewDenials(s, near.DenialsConfig{Size: 64, Skew: -1, Now: c.Now})
	}
	for name, row := range map[string]struct {
		make func(testing.TB, *weirtest.Clock) weir.Strategy
		laws weirtest.Laws
		skip map[string]string
	}{
		"Lease": {func(t testing.TB, c *weirtest.Clock) weir.Strategy {
			return lease(fixed(t, c), c)
		}, laws,
			nil},
		"Denials": {func(t testing.TB, c *weirtest.Clock) weir.Strategy {
			return denials(fixed(t, c), c)
		},
			laws, clockBack},
		"Lease of a SlidingWindow": {
			func(t testing.TB, c *weirtest.Clock) weir.Strategy {
				return lease(limiterOn(t, c).SlidingWindow(), c)
			},
			weirtest.Laws{Span: twice, Aligned: true, Histories: slow.N(3, 20, 100)}, skips(
				"what is left of a lease counts in the next window, and TotalRequests is as of the last block",
				"DenialTakesNothing", "Hammering", "RetryInstant", "TotalRequests", "Refund", "Charge"),
		},
		"Lease of a TokenBucket": {
			func(t testing.TB, c *weirtest.Clock) weir.Strategy {
				return lease(limiterOn(t, c).TokenBucket(0), c)
			},
			weirtest.Laws{Span: twice, Histories: slow.N(3, 20, 100)}, skips(
				"of a token that has flowed in again in part nothing is left, and blocks are of one Limit",
				"DenialTakesNothing", "LimitChange", "Refund", "Charge"),
		},
		"Denials of a log": {
			func(t testing.TB, c *weirtest.Clock) weir.Strategy { return denials(log(t, c), c) },
			weirtest.Laws{Histories: slow.N(3, 20, 100)}, map[string]string{
				"ClockBack": clockBack["ClockBack"],
				"Refund":    "the TotalRequests of a repeated denial is as of its decision",
				"Charge":    "the same",
			},
		},
		"Lease of Denials": {
			func(t testing.TB, c *weirtest.Clock) weir.Strategy {
				return lease(denials(fixed(t, c), c), c)
			}, laws, clockBack,
		},
		"Denials of Lease": {
			func(t testing.TB, c *weirtest.Clock) weir.Strategy {
				return denials(lease(fixed(t, c), c), c)
			}, laws, clockBack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.laws.Skip = row.skip
			weirtest.TestStrategy(t, row.make, row.laws)
		})
	}
}

// reconciling is a remote with a Reconcile that only resets.
type reconciling struct{ *remote }

func (s reconciling) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	if b.Reset {
		if err := s.Reset(ctx, r); err != nil {
			return nil, err
		}
	}
	return s.Run(ctx, r)
}

// A reset that the wrapped strategy has missed ends the lease, too. A denial ends with the
// decision.
func TestReconcileResets(t *testing.T) {
	for _, reset := range []bool{true, false} {
		clock, server := minute(t)
		lease := near.NewLeases(reconciling{server}, near.LeaseConfig{Block: 10, Now: clock.Now})
		ask(t, lease, hundred) // takes a block
		r := hundred
		_, err := lease.Reconcile(t.Context(), &r, &weir.Backlog{Reset: reset, Source: "x"})
		require.NoError(t, err)
		before := server.calls.Load()
		ask(t, lease, hundred)
		assert.Equal(t, reset, server.calls.Load() > before)
	}
	clock, server := minute(t)
	denials := near.NewDenials(reconciling{server}, near.DenialsConfig{Now: clock.Now})
	full, r := hundred, hundred
	full.Cost = 100
	ask(t, denials, hundred)
	require.False(t, ask(t, denials, full).Allowed())
	_, err := denials.Reconcile(t.Context(), &r, &weir.Backlog{Reset: true, Source: "x"})
	require.NoError(t, err)
	before := server.calls.Load()
	ask(t, denials, full)
	assert.Greater(t, server.calls.Load(), before)
}

// Each wrapper has every optional method. It returns errors.ErrUnsupported if the wrapped strategy
// lacks the method.
func TestUnsupported(t *testing.T) {
	clock, server := minute(t)
	for name, s := range map[string]wrapper{
		"Lease":   near.NewLeases(bare{server}, near.LeaseConfig{Now: clock.Now}),
		"Denials": near.NewDenials(bare{server}, near.DenialsConfig{Now: clock.Now}),
		"both":    near.NewLeases(near.NewDenials(bare{server}, near.DenialsConfig{}), near.LeaseConfig{}),
	} {
		ctx, r, res := t.Context(), hundred, &weir.Result{State: weir.Allow, TotalRequests: 1,
			ExpiresAt: clock.Now().Add(time.Hour)}
		_, peek := s.Peek(ctx, &r)
		_, prefix := s.ResetPrefix(ctx, "", nil)
		_, reconcile := s.Reconcile(ctx, &r, &weir.Backlog{Source: "x"})
		for call, err := range map[string]error{
			"Peek": peek, "Refund": s.Refund(ctx, &r, res), "Reset": s.Reset(ctx, &r),
			"Seed":   s.Seed(ctx, &r, res),
			"Charge": s.Charge(ctx, &r), "ResetPrefix": prefix, "Reconcile": reconcile,
			"Warm": s.Warm(ctx, &r),
		} {
			assert.ErrorIs(t, err, errors.ErrUnsupported, "%s of %s", call, name)
			assert.ErrorContains(t, err, "fixed window cannot", "%s of %s", call, name)
		}
	}
	assert.Panics(t, func() { near.NewLeases(nil, near.LeaseConfig{}) })
	assert.Panics(t, func() { near.NewDenials(nil, near.DenialsConfig{}) })
}
