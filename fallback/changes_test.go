package fallback_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
)

// Reservations match their model whether primary or local counts.
func TestReserve(t *testing.T) {
	for name, primary := range map[string]func(weir.Strategy) weir.Strategy{
		"primary answers": func(s weir.Strategy) weir.Strategy { return s },
		"primary is down": func(s weir.Strategy) weir.Strategy {
			down := newServer(func() weir.Strategy { return s })
			down.fails(errDown)
			return down
		},
	} {
		t.Run(name, func(t *testing.T) {
			subject := verbtest.Reserver{Span: 2 * verbtest.ReserveLimit,
				Make: func(now func() time.Time) weir.Strategy {
					l := func() weir.Strategy { return limiterOn(t, now).FixedWindow() }
					return newFallback(t, primary(l()), l(), with(fallback.Config{Now: now, Timeout: time.Minute}))
				}}
			for seed := range uint64(slow.N(10, 40, 1000)) {
				require.NoError(t, subject.Check(seed, 60), "seed %d", seed)
				require.NoError(t, subject.CheckSpans(seed, 60), "seed %d", seed)
			}
		})
	}
}

// total returns the count of s for r.
func total(t *testing.T, s weir.Strategy, r weir.Request) uint64 {
	t.Helper()
	res, err := ops.Peek(t.Context(), s, &r)
	require.NoError(t, err)
	return res.TotalRequests - uint64(res.State)
}

// A local strategy that never decides is not charged, so its errors cannot drop a debt to primary.
func TestChargeWithoutLocal(t *testing.T) {
	l, err := weir.New(weir.Config{MaxBuckets: 1})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.CheckRate("another", 60_000, 1)
	require.NoError(t, err)
	server := newServer(func() weir.Strategy { return fixedWindow(l) })
	server.fails(errDown)
	f := newFallback(t, server, l.FixedWindow(), with(fallback.Config{OnFail: fallback.FailOpen}))
	require.NoError(t, ops.Charge(t.Context(), f, &hundred))
	assert.Equal(t, 1, f.Stats().Callers, "the debt is kept")
}

// A charge during an outage reaches primary once, before primary decides on that key again.
func TestChargesOfAnOutageReachPrimary(t *testing.T) {
	for name, to := range fronts {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), to)
			one, charge := f.instances[0], hundred
			charge.Cost = 7
			require.NoError(t, ops.Charge(t.Context(), one, &charge))
			assert.Equal(t, uint64(7), total(t, f.server, hundred), "charged to primary")

			f.server.fails(errDown)
			require.NoError(t, ops.Charge(t.Context(), one, &charge), "local is charged in the same call")
			assert.Equal(t, fallback.Open, one.Stats().State)
			assert.Equal(t, uint64(14), total(t, one, hundred), "local is seeded with the earlier charge")
			require.NoError(t, ops.Charge(t.Context(), one, &charge))

			f.heal(t)
			for range 3 {
				_, by := ask(t, one, hundred)
				assert.Equal(t, weir.FromPrimary, by)
			}
			assert.Equal(t, uint64(21+3), total(t, f.server, hundred))
		})
	}
}

// A charge counts to the end of its period, even if local is full and would admit another request
// sooner.
func TestAChargeThatDoesNotFitReachesPrimary(t *testing.T) {
	for name, of := range strategies() {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, of, tripAtOnce, whole)
			one, charge := f.instances[0], hundred
			for range 100 {
				ask(t, one, hundred)
				f.clock.Advance(time.Millisecond)
			}
			f.server.fails(errDown)
			charge.Cost = 7
			require.NoError(t, ops.Charge(t.Context(), one, &charge))
			f.clock.Advance(5 * time.Second)
			f.heal(t)
			ask(t, one, hundred)
			assert.EqualValues(t, 7, one.Stats().Reconciled)
		})
	}
}

func TestChargeReturnsErrors(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), whole)
	assert.ErrorIs(t, ops.Charge(t.Context(), f.instances[0], &weir.Request{}), weir.ErrID)

	l := limiterOn(t, f.clock.Now)
	f.server.fails(errDown)
	one := newFallback(t, f.server, l.FixedWindow(), with(fallback.Config{Now: f.clock.Now}))
	require.NoError(t, l.Close())
	assert.ErrorIs(t, ops.Charge(t.Context(), one, &hundred), weir.ErrClosed)
}

func TestChargeOfAPrimaryThatCannotBeCharged(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), bareFront)
	one := f.instances[0]
	assert.ErrorIs(t, ops.Charge(t.Context(), one, &hundred), errors.ErrUnsupported)
	f.server.fails(errDown)
	ask(t, one, hundred)
	require.NoError(t, ops.Charge(t.Context(), one, &hundred))
	assert.Equal(t, uint64(2), total(t, one, hundred), "local counts it")
}

// A reset of a prefix is of primary, of local, and of what is owed. While primary does not answer
// it fails; local is reset, and primary is for the callers that are known here.
func TestResetPrefix(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), whole)
	one, other := f.instances[0], hundred
	other.Key = "b"
	useUp := func() {
		t.Helper()
		for _, r := range []weir.Request{hundred, other} {
			for range 101 {
				ask(t, one, r)
			}
		}
	}
	fresh := func(r weir.Request) bool {
		t.Helper()
		res, _ := ask(t, one, r)
		return res.Allowed() && res.TotalRequests == 1
	}
	useUp()
	n, err := ops.ResetPrefix(t.Context(), one, hundred.Key, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.True(t, fresh(hundred))
	assert.False(t, fresh(other))

	f.server.fails(errDown)
	useUp()
	_, err = ops.ResetPrefix(t.Context(), one, hundred.Key, nil)
	assert.ErrorIs(t, err, errDown)
	assert.True(t, fresh(hundred), "by local")
	f.heal(t)
	res, by := ask(t, one, hundred)
	assert.Equal(t, weir.FromPrimary, by)
	assert.EqualValues(t, 2, res.TotalRequests, "since the reset")
	assert.False(t, fresh(other))
}

// What a Fallback cannot do is an error, and no call.
func TestVerbsOfAFallback(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{}, whole)
	for _, op := range []weir.Op{
		{Verb: weir.OpHits}, {Verb: weir.OpForecast}, {Verb: weir.OpHold}, {Verb: weir.OpRenew},
		{Verb: weir.OpCatchUp, Backlog: &weir.Backlog{Total: 1}},
		{Verb: weir.OpTake, Backlog: &weir.Backlog{Total: 1}},
	} {
		op.Request = hundred
		assert.ErrorIs(t, ops.Do(t.Context(), f.instances[0], op).Err, errors.ErrUnsupported, op.Verb)
	}
	assert.Zero(t, f.server.runs.Load())
	assert.Zero(t, total(t, f.server, hundred))
}

// Debts of a Fallback whose primary is another one are charged there.
func TestDebtsOfAFallbackOfAFallback(t *testing.T) {
	var inner *fallback.Fallback
	f := newFleet(t, 1, fixedWindow, fallback.Config{}, func(s *server) weir.Strategy { return s })
	var down atomic.Bool
	inner = f.instances[0]
	primary := newAround(inner, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if down.Load() {
			op.Err = errDown
			return
		}
		next(ctx, op)
	})
	outer := newFallback(t, primary, limiterOn(t, f.clock.Now).FixedWindow(),
		fallback.Config{Now: f.clock.Now, Timeout: time.Minute})
	ask(t, outer, hundred)
	down.Store(true)
	ask(t, outer, hundred)
	ask(t, outer, hundred)
	down.Store(false)
	ask(t, outer, hundred)
	assert.EqualValues(t, 4, total(t, f.server, hundred))
	assert.EqualValues(t, 2, outer.Stats().Reconciled)
}

// What local has admitted where it cannot decide any more goes back to primary, if that was
// charged.
func TestReturnWithoutLocal(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{OnFail: fallback.FailOpen}), whole)
	one := f.instances[0]
	f.server.fails(errDown)
	charge := hundred
	charge.Cost = 7
	require.NoError(t, ops.Charge(t.Context(), one, &charge))
	require.NoError(t, ops.Refund(t.Context(), one, &charge,
		&weir.Result{State: weir.Allow, ExpiresAt: f.clock.Now().Add(time.Second)}))
	f.heal(t)
	ask(t, one, hundred)
	assert.EqualValues(t, 1, total(t, f.server, hundred), "nothing is owed")
}
