package fallback_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/near"
)

// admit admits a request of hundred with a cost.
func admit(t *testing.T, s weir.Strategy, cost uint64) ops.Return {
	t.Helper()
	r := hundred
	r.Cost = cost
	res, giveBack, err := ops.Admit(t.Context(), s, &r)
	require.NoError(t, err)
	require.True(t, res.Allowed())
	r = weir.Request{} // it is the caller's again
	return giveBack
}

func giveBack(t *testing.T, to ops.Return, cost uint64) {
	t.Helper()
	require.NoError(t, to(t.Context(), cost))
}

func TestReturnToPrimary(t *testing.T) {
	for name, to := range map[string]front{
		"reconciles":        whole,
		"seeds and charges": chargingFront,
		"has no Receipts, in denials": func(s *server) weir.Strategy {
			return near.NewDenials(chargingFront(s), near.DenialsConfig{Now: s.now})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), to)
			one := f.instances[0]
			first := admit(t, one, 40)
			second := admit(t, one, 30)
			giveBack(t, first, 10)
			assert.EqualValues(t, 60, total(t, one, hundred), "a part")
			giveBack(t, first, 1000)
			assert.EqualValues(t, 30, total(t, one, hundred), "the rest, and no more than was taken")
			giveBack(t, first, 40)
			assert.EqualValues(t, 30, total(t, one, hundred), "nothing is left of it")

			require.NoError(t, ops.Reset(t.Context(), one, &hundred))
			third := admit(t, one, 100)
			giveBack(t, second, 30)
			assert.EqualValues(t, 100, total(t, one, hundred), "the second was reset")

			f.clock.Advance(2 * time.Minute)
			admit(t, one, 5)
			giveBack(t, third, 100)
			assert.EqualValues(t, 5, total(t, one, hundred), "the period has ended")
		})
	}
}

func TestReturnToLocal(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
	one := f.instances[0]
	f.server.fails(errDown)
	first := admit(t, one, 40)
	giveBack(t, first, 10)
	assert.EqualValues(t, 30, total(t, one, hundred), "local gives back")
	f.heal(t)
	ask(t, one, hundred)
	assert.EqualValues(t, 30+1, total(t, f.server, hundred), "and primary is charged with the rest")
	giveBack(t, first, 10)
	assert.EqualValues(t, 20+1, total(t, f.server, hundred), "what was charged is refunded")
	giveBack(t, first, 1000)
	assert.EqualValues(t, 1, total(t, f.server, hundred))
}

func TestReturnToLocalAfterReset(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
	one := f.instances[0]
	f.server.fails(errDown)
	first := admit(t, one, 40)
	require.NoError(t, ops.Reset(t.Context(), one, &hundred))
	admit(t, one, 100)
	giveBack(t, first, 40)
	assert.EqualValues(t, 100, total(t, one, hundred), "the first was reset")
	f.heal(t)
	res, _ := ask(t, one, hundred)
	assert.False(t, res.Allowed(), "and primary is charged with all of the second")
}

// A Return that primary does not receive is lost, and local gives back nothing in its place.
func TestReturnDuringAnOutageIsLost(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
	one := f.instances[0]
	first := admit(t, one, 40)
	f.server.fails(errDown)
	admit(t, one, 60)
	giveBack(t, first, 40)
	assert.EqualValues(t, 100, total(t, one, hundred))
	f.heal(t)
	res, _ := ask(t, one, hundred)
	assert.False(t, res.Allowed())
}

// Strategies without Receipts give back by the Result, but not after a reset.
func TestReturnWithoutReceipts(t *testing.T) {
	for name, err := range map[string]error{"primary answers": nil, "primary is down": errDown} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
			f.server.fails(err)
			local := limiterOn(t, f.clock.Now).FixedWindow()
			one := newFallback(t, chargingOnly(f.server), chargingOnly(local),
				with(fallback.Config{Now: f.clock.Now, MinCalls: 1, Stall: -1}))
			first := admit(t, one, 40)
			giveBack(t, first, 10)
			assert.EqualValues(t, 30, total(t, one, hundred))
			require.NoError(t, ops.Reset(t.Context(), one, &hundred))
			admit(t, one, 100)
			giveBack(t, first, 30)
			assert.EqualValues(t, 100, total(t, one, hundred), "the first was reset")
		})
	}
}

func TestAdmitByPolicyAndOfDenials(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{OnFail: fallback.FailOpen}), whole)
	one := f.instances[0]
	admit(t, one, 100)
	res, back, err := ops.Admit(t.Context(), one, &hundred)
	require.NoError(t, err)
	require.False(t, res.Allowed())
	giveBack(t, back, 1)
	assert.EqualValues(t, 100, total(t, one, hundred), "a denial took nothing")
	f.server.fails(errDown)
	back = admit(t, one, 1)
	f.server.fails(nil)
	giveBack(t, back, 1)
	assert.EqualValues(t, 100, total(t, f.server, hundred), "the policy took nothing")
	_, _, err = ops.Admit(t.Context(), one, &weir.Request{})
	assert.ErrorIs(t, err, weir.ErrID)
}

// What is admitted from a lease returns to it, but not after a Reset.
func TestReturnToALease(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, with(fallback.Config{}), whole)
	lease := near.NewLeases(f.server, near.LeaseConfig{Block: 50, Skew: -1, Now: f.clock.Now})
	one := newFallback(t, lease, limiterOn(t, f.clock.Now).FixedWindow(),
		with(fallback.Config{Now: f.clock.Now}))
	admit(t, one, 1) // takes a block
	admit(t, one, 1)
	fromLease := admit(t, one, 3)
	require.Positive(t, one.Stats().Lease)
	counted := total(t, f.server, hundred)
	giveBack(t, fromLease, 1)
	assert.EqualValues(t, 4, total(t, one, hundred))
	assert.Equal(t, counted, total(t, f.server, hundred), "the lease has it")
	require.NoError(t, ops.Reset(t.Context(), one, &hundred))
	admit(t, one, 100)
	giveBack(t, fromLease, 2)
	assert.EqualValues(t, 100, total(t, f.server, hundred), "it was reset")
}
