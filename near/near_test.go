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
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

var errDown = errors.New("connection refused")

var hundred = weir.Request{Key: "a", Limit: 100, Duration: time.Minute}

// remote is a strategy shared by several instances that counts its decisions.
type remote struct {
	weir.Counter
	calls atomic.Uint64

	mu   sync.Mutex
	err  error  // guarded by mu
	then func() // guarded by mu; called once, between the next decision and its return
}

// remotely returns a remote that counts by s.
func remotely(s weir.Strategy) *remote { return &remote{Counter: weir.CounterOf(s)} }

func (s *remote) fails(err error)      { s.mu.Lock(); s.err = err; s.mu.Unlock() }
func (s *remote) afterRun(then func()) { s.mu.Lock(); s.then = then; s.mu.Unlock() }

func (s *remote) About() *weir.About { return s.Counter.About().By(s) }

func (s *remote) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *remote) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb != weir.OpTake {
			s.Counter.Do(ctx, []*weir.Op{op})
			continue
		}
		s.calls.Add(1)
		s.mu.Lock()
		err, then := s.err, s.then
		s.then = nil
		s.mu.Unlock()
		if err != nil {
			op.Err = err
			continue
		}
		s.Counter.Do(ctx, []*weir.Op{op})
		if then != nil {
			then()
		}
	}
}

// bare is a Counter that only decides.
type bare struct{ weir.Counter }

func (b bare) About() *weir.About {
	a := b.Counter.About().By(b)
	a.Verbs = weir.VerbsOf(weir.OpTake)
	return a
}

func (b bare) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb != weir.OpTake || op.Backlog != nil {
			op.Err = op.Unsupported(b.About())
			continue
		}
		b.Counter.Do(ctx, []*weir.Op{op})
	}
}

// limiterOn returns a limiter on a clock; nil is the real one, which is virtual in a bubble.
func limiterOn(t testing.TB, now func() time.Time) *weir.Limiter {
	l, err := weir.New(weir.Config{Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func minute(t testing.TB) (*weirtest.Clock, *remote) {
	clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	return clock, remotely(limiterOn(t, clock.Now).FixedWindow())
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
	type front func(weir.Strategy, *weirtest.Clock) weir.Strategy
	fixed := func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }
	var lease front = func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewLeases(s, near.LeaseConfig{Block: 8, Skew: -1, Now: c.Now})
	}
	var denials front = func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewDenials(s, near.DenialsConfig{Size: 64, Skew: -1, Now: c.Now})
	}
	windows := weirtest.Laws{Span: twice, Aligned: true}
	clockBack := map[string]string{"ClockBack": "a denial is good by the clock"}
	for name, row := range map[string]struct {
		of   func(*weir.Limiter) weir.Strategy
		to   []front // the innermost first
		laws weirtest.Laws
		skip map[string]string
	}{
		"Lease":   {fixed, []front{lease}, windows, nil},
		"Denials": {fixed, []front{denials}, windows, clockBack},
		"Lease of a SlidingWindow": {
			func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() }, []front{lease}, windows,
			skips(
				"what is left of a lease counts in the next window, and TotalRequests is as of the last block",
				"DenialTakesNothing", "Hammering", "RetryInstant", "TotalRequests", "Refund", "Charge"),
		},
		"Lease of a TokenBucket": {
			func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) }, []front{lease},
			weirtest.Laws{Span: twice}, skips(
				"of a token that has flowed in again in part nothing is left, and blocks are of one Limit",
				"DenialTakesNothing", "LimitChange", "Refund", "Charge"),
		},
		"Denials of a log": {
			func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }, []front{denials},
			weirtest.Laws{}, map[string]string{
				"ClockBack": clockBack["ClockBack"],
				"Refund":    "the TotalRequests of a repeated denial is as of its decision",
				"Charge":    "the same",
			},
		},
		"Lease of Denials": {fixed, []front{denials, lease}, windows, clockBack},
		"Denials of Lease": {fixed, []front{lease, denials}, windows, clockBack},
	} {
		t.Run(name, func(t *testing.T) {
			row.laws.Skip, row.laws.Histories = row.skip, slow.N(3, 20, 100)
			weirtest.TestStrategy(t, func(t testing.TB, c *weirtest.Clock) weir.Strategy {
				s := row.of(limiterOn(t, c.Now))
				for _, to := range row.to {
					s = to(s, c)
				}
				return s
			}, row.laws)
		})
	}
}

// A reset that the wrapped strategy has missed ends the lease, too. A denial ends with the
// decision.
func TestReconcileResets(t *testing.T) {
	for _, reset := range []bool{true, false} {
		clock, server := minute(t)
		lease := near.NewLeases(server, near.LeaseConfig{Block: 10, Now: clock.Now})
		ask(t, lease, hundred) // takes a block
		r := hundred
		_, err := ops.Reconcile(t.Context(), lease, &r, &weir.Backlog{Reset: reset, Source: "x"})
		require.NoError(t, err)
		before := server.calls.Load()
		ask(t, lease, hundred)
		assert.Equal(t, reset, server.calls.Load() > before)
	}
	clock, server := minute(t)
	denials := near.NewDenials(server, near.DenialsConfig{Now: clock.Now})
	full, r := hundred, hundred
	full.Cost = 100
	ask(t, denials, hundred)
	require.False(t, ask(t, denials, full).Allowed())
	_, err := ops.Reconcile(t.Context(), denials, &r, &weir.Backlog{Reset: true, Source: "x"})
	require.NoError(t, err)
	before := server.calls.Load()
	ask(t, denials, full)
	assert.Greater(t, server.calls.Load(), before)
}

// What catches up without a decision ends leases and denials too, if it resets, and tells a lease
// what it charges.
func TestCatchUp(t *testing.T) {
	for name, s := range map[string]func(*remote, *weirtest.Clock) weir.Strategy{
		"Lease": func(server *remote, clock *weirtest.Clock) weir.Strategy {
			return near.NewLeases(server, near.LeaseConfig{Block: 10, Now: clock.Now})
		},
		"Denials": func(server *remote, clock *weirtest.Clock) weir.Strategy {
			return near.NewDenials(server, near.DenialsConfig{Now: clock.Now})
		},
	} {
		clock, server := minute(t)
		s := s(server, clock)
		catchUp := func(b weir.Backlog) {
			require.NoError(t, ops.Do(t.Context(), s, weir.Op{Verb: weir.OpCatchUp, Request: hundred,
				Backlog: &b}).Err, name)
		}
		ask(t, s, hundred)
		catchUp(weir.Backlog{Source: "x", Total: 9})
		rest := most(t, s, hundred)
		assert.EqualValues(t, 90, rest, name)
		catchUp(weir.Backlog{Source: "y", Reset: true})
		assert.EqualValues(t, 100, most(t, s, hundred), name)
	}
}

// A Limit counts by what has made it, in the keys of its name.
func TestLimit(t *testing.T) {
	clock, server := minute(t)
	leases := near.NewLeases(server, near.LeaseConfig{Block: 2, Now: clock.Now})
	denials := near.NewDenials(server, near.DenialsConfig{Now: clock.Now})
	for name, limit := range map[string]func(n uint64, d time.Duration) *weir.Limit{
		"leases": leases.Limit, "denials": denials.Limit,
	} {
		m := limit(30, time.Minute).Named(name)
		for n := range 35 {
			out, err := m.Take(t.Context(), "a", 1)
			require.NoError(t, err)
			assert.Equal(t, n < 30, out.Allowed(), name)
		}
		out, err := weir.CounterOf(server).Run(t.Context(), &weir.Request{Key: weir.JoinKey(name, "a"),
			Limit: 31, Duration: time.Minute})
		require.NoError(t, err)
		assert.EqualValues(t, 31, out.TotalRequests, name)
		assert.Panics(t, func() { limit(3, -time.Minute) }, name)
	}
	assert.Positive(t, leases.Stats().Leased)
	assert.Positive(t, denials.Repeated())
	bound := near.NewDenials(denials.Limit(3, time.Minute), near.DenialsConfig{})
	assert.Panics(t, func() { bound.Limit(3, time.Minute) }, "it has its numbers already")
}

// Each wrapper hands on every op. It fails with errors.ErrUnsupported if the wrapped Counter cannot
// do it.
func TestUnsupported(t *testing.T) {
	clock, server := minute(t)
	for name, s := range map[string]weir.Counter{
		"Lease":   near.NewLeases(bare{server}, near.LeaseConfig{Now: clock.Now}),
		"Denials": near.NewDenials(bare{server}, near.DenialsConfig{Now: clock.Now}),
		"both":    near.NewLeases(near.NewDenials(bare{server}, near.DenialsConfig{}), near.LeaseConfig{}),
	} {
		ctx, r, res := t.Context(), hundred, &weir.Result{State: weir.Allow, TotalRequests: 1,
			ExpiresAt: clock.Now().Add(time.Hour)}
		_, peek := ops.Peek(ctx, s, &r)
		_, prefix := ops.ResetPrefix(ctx, s, "", nil)
		_, reconcile := ops.Reconcile(ctx, s, &r, &weir.Backlog{Source: "x"})
		for call, err := range map[string]error{
			"Peek": peek, "Refund": ops.Refund(ctx, s, &r, res), "Reset": ops.Reset(ctx, s, &r),
			"Seed":   ops.Seed(ctx, s, &r, res),
			"Charge": ops.Charge(ctx, s, &r), "ResetPrefix": prefix, "Reconcile": reconcile,
			"Warm": ops.Warm(ctx, s, &r),
		} {
			assert.ErrorIs(t, err, errors.ErrUnsupported, "%s of %s", call, name)
			assert.ErrorContains(t, err, "fixed window cannot", "%s of %s", call, name)
		}
	}
	assert.Panics(t, func() { near.NewLeases(nil, near.LeaseConfig{}) })
	assert.Panics(t, func() { near.NewDenials(nil, near.DenialsConfig{}) })
}
