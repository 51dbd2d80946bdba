package fallback_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// holder is a primary whose places are leases, and which can be down.
type holder struct {
	*around
	down *atomic.Bool
}

func newHolder(t testing.TB) holder {
	h := holder{down: new(atomic.Bool)}
	h.around = newAround(limiterOn(t, nil).InFlight(),
		func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
			if h.down.Load() && op.Verb != weir.OpPeek {
				op.Err = errDown
				return
			}
			take := func() {
				of := weir.Op{Request: op.Request, Keep: true}
				next(ctx, &of)
				op.Result, op.Err = of.Result, of.Err
				if of.Err == nil && of.Result.Allowed() {
					op.Receipt = of.Receipt
				}
			}
			giveBack := func() {
				of := weir.Op{Verb: weir.OpReturn, Request: op.Request, Receipt: op.Receipt}
				next(ctx, &of)
				op.Err = of.Err
			}
			switch op.Verb {
			case weir.OpHold:
				take()
			case weir.OpRenew:
				giveBack()
				if op.Err == nil {
					take()
				}
			case weir.OpRelease:
				giveBack()
			default:
				next(ctx, op)
			}
		})
	return h
}

// In an outage work in flight goes on, each instance admits up to its share, and primary knows of
// all places again afterwards, as far as it has room.
func TestPlacesInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, n, share = 10, 3, 4
		r := &weir.Request{Key: "a", Limit: limit, Duration: time.Minute}
		counted := func(s weir.Strategy) uint64 {
			all := *r
			all.Limit = 1 << 20
			res, err := ops.Peek(t.Context(), s, &all)
			require.NoError(t, err)
			return res.TotalRequests - 1
		}
		primary := newHolder(t)
		var all [n]*fallback.Fallback
		var locals [n]*weir.InFlight
		for i := range all {
			locals[i] = limiterOn(t, nil).InFlight()
			cfg := tripAtOnce
			cfg.Instances = n
			all[i] = newFallback(t, primary.around, locals[i], cfg)
		}
		var held [n][]*weir.Held
		// hold has an instance hold up to so many places more, and returns how many it got.
		hold := func(i, most int) (got int) {
			for range most {
				h, err := weir.Hold(t.Context(), all[i], r)
				if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
					break
				}
				require.NoError(t, err)
				held[i] = append(held[i], h)
				got++
			}
			return got
		}
		release := func(i int) {
			last := len(held[i]) - 1
			require.NoError(t, held[i][last].Release(t.Context()))
			held[i] = held[i][:last]
		}
		require.Equal(t, 6, hold(0, 6))
		require.Equal(t, 2, hold(1, 2))
		// rest lets a time pass, and the renewals end that are due at its end.
		rest := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		rest(5 * time.Minute)
		require.EqualValues(t, 8, counted(primary.around), "all is renewed")
		require.EqualValues(t, 6, counted(locals[0]), "and known to local")

		primary.down.Store(true)
		assert.Equal(t, 0, hold(0, limit), "it holds more than its share")
		assert.Equal(t, share-2, hold(1, limit))
		assert.Equal(t, share, hold(2, limit))
		total := len(held[0]) + len(held[1]) + len(held[2])
		assert.LessOrEqual(t, total, limit+(n-1)*share)
		rest(5 * time.Minute)
		require.Zero(t, counted(primary.around), "the leases have ended")
		release(0) // primary has known it
		release(2) // primary has not
		assert.Equal(t, 0, hold(0, 1))
		assert.Equal(t, 1, hold(2, 1), "the share is free again")
		for i := range all {
			assert.EqualValues(t, len(held[i]), counted(locals[i]))
			for _, h := range held[i] {
				select {
				case <-h.Lost():
					t.Error("the work goes on")
				default:
				}
			}
		}
		total = len(held[0]) + len(held[1]) + len(held[2])
		require.Equal(t, 13, total)

		primary.down.Store(false)
		rest(2 * time.Minute) // a probe, and then a renewal of each
		assert.EqualValues(t, limit, counted(primary.around), "primary knows them, as far as it has room")
		lost := 0
		for i := range all {
			kept := 0
			for _, h := range held[i] {
				select {
				case <-h.Lost():
					lost++
				default:
					kept++
				}
			}
			assert.EqualValues(t, kept, counted(locals[i]))
		}
		assert.Equal(t, total-limit, lost, "the others are lost")
		assert.Zero(t, hold(1, 1), "primary is full")
		for i := range all {
			for len(held[i]) > 0 {
				release(i)
			}
			assert.Zero(t, counted(locals[i]))
		}
		assert.Zero(t, counted(primary.around), "nothing is held")
	})
}

// An instance that is alone never has more than the limit in flight, though primary does not know
// what local has admitted until that is renewed.
func TestAnInstanceHoldsAtMostTheLimitAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &weir.Request{Key: "a", Limit: 10, Duration: time.Minute}
		local := limiterOn(t, nil).InFlight()
		primary := newHolder(t)
		f := newFallback(t, primary.around, local, tripAtOnce)
		var held []*weir.Held
		for _, down := range []bool{false, true, false} {
			primary.down.Store(down)
			for range 6 { // with time for a probe, and not for a renewal
				time.Sleep(time.Second)
				if h, err := weir.Hold(t.Context(), f, r); err == nil {
					held = append(held, h)
				}
			}
		}
		require.Len(t, held, 10)
		_, err := weir.Hold(t.Context(), f, r)
		var denied *weir.DeniedError
		require.ErrorAs(t, err, &denied)
		assert.NotErrorIs(t, err, weir.ErrLimit, "it can pass later")
		for _, h := range held {
			require.NoError(t, h.Release(t.Context()))
		}
		for _, s := range []weir.Strategy{primary.around, local} {
			res, err := ops.Peek(t.Context(), s, r)
			require.NoError(t, err)
			assert.EqualValues(t, 1, res.TotalRequests, "nothing is held")
		}
	})
}

// A primary that answers late has admitted a place for which nobody waits any more, whether local
// has decided or the caller has left: it is given back.
func TestALatePlaceIsGivenBack(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			primary := slowHolder(newHolder(t), time.Second)
			local := limiterOn(t, nil).InFlight()
			f := newFallback(t, primary, local, fallback.Config{Timeout: 50 * time.Millisecond})
			r := &weir.Request{Key: "a", Limit: 2, Duration: time.Hour}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			h, err := weir.Hold(ctx, f, r)
			require.Equal(t, leaves, errors.Is(err, context.Canceled))
			time.Sleep(time.Minute)
			synctest.Wait()
			res, err := ops.Peek(t.Context(), primary, r)
			require.NoError(t, err)
			assert.EqualValues(t, 1, res.TotalRequests, "primary holds nothing")
			if !leaves {
				require.NoError(t, h.Release(t.Context()))
			}
			time.Sleep(time.Minute)
		})
	}
}

// So is one that primary admits at the instant at which the wait for it ends.
func TestAPlaceThatIsJustTooLateIsGivenBack(t *testing.T) {
	const takes = 50 * time.Millisecond
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			primary := slowHolder(newHolder(t), takes)
			cfg, ctx := fallback.Config{Timeout: takes}, t.Context()
			if i%2 == 1 {
				cfg.Timeout = time.Minute
				short, cancel := context.WithCancel(ctx)
				defer time.AfterFunc(takes, cancel).Stop()
				ctx = short
			}
			f := newFallback(t, primary, primary.Counter.(*around).Counter, cfg)
			r := &weir.Request{Key: "a", Limit: 2, Duration: time.Hour}
			if h, err := weir.Hold(ctx, f, r); err == nil {
				require.NoError(t, h.Release(t.Context()))
			}
			time.Sleep(time.Minute)
			res, err := ops.Peek(t.Context(), primary, r)
			require.NoError(t, err)
			require.EqualValues(t, 1, res.TotalRequests, "primary holds nothing")
		})
	}
}

// slowHolder returns a holder whose places take some time.
func slowHolder(h holder, takes time.Duration) *around {
	return newAround(h.around, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if op.Verb == weir.OpHold {
			time.Sleep(takes) // in a bubble
		}
		next(ctx, op)
	})
}

// To release a place that primary does not know is no call of primary, which would count as a
// success.
func TestReleaseOfALocalPlaceIsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		primary := newHolder(t)
		f := newFallback(t, primary.around, primary.Counter, fallback.Config{MinCalls: 1000,
			OnCall: func(time.Duration, error) { calls.Add(1) }})
		for _, down := range []bool{true, false} {
			primary.down.Store(down)
			h, err := weir.Hold(t.Context(), f, &weir.Request{Key: "a", Limit: 10, Duration: time.Hour})
			require.NoError(t, err)
			synctest.Wait()
			before := calls.Load()
			primary.down.Store(false)
			require.NoError(t, h.Release(t.Context()))
			synctest.Wait()
			assert.Equal(t, !down, calls.Load() > before, "the control is known to primary")
		}
	})
}

// Work that was denied has no place to give back.
func TestADeniedHoldHasNoReceipt(t *testing.T) {
	f := newFallback(t, limiterOn(t, nil).InFlight(), limiterOn(t, nil).InFlight(), tripAtOnce)
	for n := range 3 {
		op := &weir.Op{Verb: weir.OpHold, Request: weir.Request{Key: "a", Limit: 1, Duration: time.Minute}}
		f.Do(t.Context(), []*weir.Op{op})
		require.NoError(t, op.Err)
		assert.Equal(t, n == 0, op.Result.Allowed())
		assert.Equal(t, n == 0, op.Receipt != weir.Receipt{})
	}
}
