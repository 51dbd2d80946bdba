package limits_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
)

// A handler streams a response of unknown length. It reserves an estimate and settles the amount
// written, even if the client disconnects.
func ExampleReserve() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	tokens := limiter.SlidingWindow().Limit(100, time.Hour)

	generate := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := tokens.Reserve(r.Context(), r.Header.Get("User"), 60) // an estimate
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if !v.Allowed() {
			http.Error(w, "come back later", http.StatusTooManyRequests)
			return
		}
		words := uint64(0)
		defer func() { _ = v.Commit(r.Context(), words) }()
		for word := range strings.FieldsSeq("a river goes over the weir") {
			if _, err := fmt.Fprint(w, word, " "); err != nil {
				return // the client disconnected; the amount written counts
			}
			words++
		}
	})
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", "alice")
		w := httptest.NewRecorder()
		generate.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Result().Body)
		fmt.Println(w.Code, strings.TrimSpace(string(body)))
	}
	out, err := tokens.Peek(context.Background(), "alice")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.TotalRequests, "tokens used")
	// Output:
	// 200 a river goes over the weir
	// 200 a river goes over the weir
	// 200 a river goes over the weir
	// 18 tokens used
}

// reservable returns every local strategy, alone and composed.
func reservable(t testing.TB) map[string]verbtest.Reserver {
	last, _ := newLimiter(t, weir.Config{})
	limiters := func(now func() time.Time) *weir.Limiter {
		require.NoError(t, last.Close()) // its history is over; a hundred thousand are too many to keep
		l, err := weir.New(weir.Config{Now: now, Timeout: 1, MaxBuckets: 1000})
		require.NoError(t, err)
		last = l
		return l
	}
	of := func(span uint64, pick func(l *weir.Limiter) weir.Strategy) verbtest.Reserver {
		return verbtest.Reserver{
			Span: span, Make: func(now func() time.Time) weir.Strategy { return pick(limiters(now)) },
		}
	}
	const limit, duration = verbtest.ReserveLimit, verbtest.ReserveDuration
	leaky := of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(0) })
	leaky.Spaced = true
	return map[string]verbtest.Reserver{
		"FixedWindow":   of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }),
		"SlidingWindow": of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() }),
		"SlidingLog":    of(limit, func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }),
		"TokenBucket":   of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) }),
		"Counter":       of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.Counter() }),
		"List":          of(2*limit, func(l *weir.Limiter) weir.Strategy { return l.List() }),
		"LeakyBucket":   leaky,
		"Tiers": of(2*limit, func(l *weir.Limiter) weir.Strategy {
			return mustTiers(t, l, weir.Tier{Limit: limit, Duration: duration})
		}),
		"All": of(limit, func(l *weir.Limiter) weir.Strategy {
			return limits.AllOf(l.SlidingLog(), l.TokenBucket(0), l.FixedWindow())
		}),
		"All of Policy and All": of(limit, func(l *weir.Limiter) weir.Strategy {
			rule := func(name string, s weir.Strategy) weir.Strategy {
				return keyed(t, name, s, limit, duration)
			}
			both := limits.AllOf(rule("a", l.SlidingLog()), rule("b", l.FixedWindow()))
			return limits.AllOf(both, limits.AllOf(rule("c", l.List()), rule("d", l.SlidingWindow())))
		}),
	}
}

func TestReserveEqualsItsModel(t *testing.T) {
	for name, s := range reservable(t) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(slow.N(15, 100, 10_000)) {
				require.NoError(t, s.Check(seed, 60), "seed %d", seed)
			}
		})
	}
}

func TestReserveNeverExceedsTheLimitAndTheCommittedExcess(t *testing.T) {
	for name, s := range reservable(t) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(slow.N(15, 100, 10_000)) {
				require.NoError(t, s.CheckSpans(seed, 60), "seed %d", seed)
			}
		})
	}
}

// missettling is a strategy with a defect in what it gives back or charges.
type missettling struct {
	refund func(s weir.Strategy, r *weir.Request, taken *weir.Result) error
	charge func(s weir.Strategy, r *weir.Request) error
}

// of returns s with the defect.
func (m missettling) of(s weir.Strategy) weir.Strategy {
	return newFake(s, func(_ context.Context, op *weir.Op, next func()) {
		switch {
		case op.Verb == weir.OpReturn && m.refund != nil:
			op.Err = m.refund(s, &op.Request, &op.Result)
		case op.Verb == weir.OpCharge && m.charge != nil:
			op.Err = m.charge(s, &op.Request)
		default:
			next()
		}
	})
}

func TestReserveControlsThatSettleWronglyAreRejected(t *testing.T) {
	ctx := t.Context()
	for name, control := range map[string]missettling{
		"no charge": {charge: func(weir.Strategy, *weir.Request) error { return nil }},
		"no refund": {refund: func(weir.Strategy, *weir.Request, *weir.Result) error { return nil }},
		"a refund twice": {refund: func(s weir.Strategy, r *weir.Request, taken *weir.Result) error {
			return errors.Join(ops.Refund(ctx, s, r, taken), ops.Refund(ctx, s, r, taken))
		}},
		"a refund to a later period": {refund: func(s weir.Strategy, r *weir.Request,
			_ *weir.Result) error {
			res, err := ops.Peek(ctx, s, &weir.Request{Key: r.Key, Limit: 1000, Duration: r.Duration})
			if err != nil {
				return err
			}
			return ops.Refund(ctx, s, r, res)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := verbtest.Reserver{Span: 20, Make: func(now func() time.Time) weir.Strategy {
				l, _ := newLimiter(t, weir.Config{Now: now})
				return control.of(l.FixedWindow())
			}}
			for seed := range uint64(40) {
				if s.Check(seed, 60) != nil {
					return
				}
			}
			t.Error("the control passed")
		})
	}
}

func TestReserveNeedsARefunderAndACharger(t *testing.T) {
	l := standing(t)
	_, err := limits.Reserve(t.Context(),
		ask(limits.AllOf(l.FixedWindow(), irrevocableFailure{}), "a", 1, 1))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Zero(t, l.Stats().Checks, "nothing was counted")
	_, err = limits.Reserve(t.Context(), ask(l.FixedWindow(), "", 1, 1))
	assert.ErrorIs(t, err, weir.ErrID)
}

// Of several concurrent Commits and Cancels of one reservation, one takes effect.
func TestReservationIsSettledOnce(t *testing.T) {
	l := standing(t)
	s := l.FixedWindow()
	ask := &weir.Request{Key: "a", Limit: 100, Duration: time.Second, Cost: 10}
	for range 100 {
		require.NoError(t, ops.Reset(t.Context(), s, ask))
		v, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s, Request: *ask})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { assert.NoError(t, v.Commit(t.Context(), 15)) })
		}
		wg.Wait()
		require.NoError(t, v.Cancel(t.Context()))
		assert.Equal(t, uint64(15), counted(t, s, ask))
	}
	denied, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s,
		Request: weir.Request{Key: "a", Limit: 20, Duration: time.Second, Cost: 10}})
	require.NoError(t, err)
	require.False(t, denied.Allowed())
	require.NoError(t, denied.Commit(t.Context(), 30))
	assert.Equal(t, uint64(15), counted(t, s, ask), "a denial has nothing to settle")
}

// resettable returns strategies that admit 5 in 10 s.
func resettable(t *testing.T, l *weir.Limiter) map[string]weir.Strategy {
	tiers := mustTiers(t, l, weir.Tier{Limit: 5, Duration: 10 * time.Second})
	return map[string]weir.Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(), "SlidingLog": l.SlidingLog(),
		"TokenBucket": l.TokenBucket(0), "Counter": l.Counter(), "List": l.List(), "Tiers": tiers,
		"Policy": keyed(t, "p", l.FixedWindow(), 5, 10*time.Second),
		"All":    limits.AllOf(l.SlidingLog(), l.Counter()),
	}
}

// What was reserved before a Reset is no longer counted, so Cancel takes nothing from what was
// admitted since.
func TestCancelAfterResetGivesNothingBack(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for name, s := range resettable(t, l) {
		t.Run(name, func(t *testing.T) {
			r := &weir.Request{Key: name, Limit: 5, Duration: 10 * time.Second, Cost: 4, Meta: "m"}
			before, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s, Request: *r})
			require.NoError(t, err)
			require.True(t, before.Allowed())
			if name == "All" {
				for _, each := range []weir.Strategy{l.SlidingLog(), l.Counter()} {
					require.NoError(t, ops.Reset(t.Context(), each, r))
				}
			} else {
				require.NoError(t, ops.Reset(t.Context(), s, r))
			}
			clock.Advance(1)
			l.Sweep() // frees the memory of the bucket that was reset
			since, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s, Request: *r})
			require.NoError(t, err)
			require.True(t, since.Allowed())
			clock.Advance(time.Millisecond)
			require.NoError(t, before.Cancel(t.Context()))
			assert.False(t, mustRun(t, s, r).Allowed(), "the older reservation gave the newer one's cost back")
			require.NoError(t, since.Commit(t.Context(), 1))
			assert.True(t, mustRun(t, s, r).Allowed(), "the newer one gives back its own")
		})
	}
}

// A reservation gives back to its own slice, also if a newer one could have ended with it.
func TestLateCancelOpensNoShortTier(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	tiers := mustTiers(t, l, weir.Tier{Limit: 10, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: 10 * time.Second})
	r := weir.Request{Key: "a", Cost: 2}
	early, err := limits.Reserve(t.Context(), weir.Ask{Strategy: tiers, Request: r})
	require.NoError(t, err)
	require.True(t, early.Allowed())
	clock.Advance(9 * time.Second) // its ExpiresAt is also that of this slice in the short tier
	r.Cost = 10
	require.True(t, mustRun(t, tiers, &r).Allowed())
	require.NoError(t, early.Cancel(t.Context()))
	r.Cost = 2
	assert.False(t, mustRun(t, tiers, &r).Allowed(), "12 in one slice")
	clock.Advance(time.Second)
	assert.True(t, mustRun(t, tiers, &r).Allowed(), "the long tier has got its 2 back")
}

// A plain Refund does not know its slice, but never takes it for one without its cost.
func TestRefundPassesSlicesWithoutItsCost(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	tiers := mustTiers(t, l, weir.Tier{Limit: 10, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: 10 * time.Second})
	r := weir.Request{Key: "a", Cost: 7}
	first := mustRun(t, tiers, &r)
	clock.Advance(9 * time.Second)
	one := weir.Request{Key: "a"}
	second := mustRun(t, tiers, &one)
	require.NoError(t, ops.Refund(t.Context(), tiers, &one, second)) // its slice has a cost of 0 now
	require.NoError(t, ops.Refund(t.Context(), tiers, &r, first))
	r.Cost = 10
	assert.EqualValues(t, 10, mustRun(t, tiers, &r).TotalRequests, "all was given back")
}

// A reservation finds its own entry in a List among any number of others.
func TestCancelTakesFromItsOwnEntry(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.List()
	r := weir.Request{Key: "a", Limit: 10_000, Duration: time.Hour, Cost: 3, Meta: "mine"}
	mustRun(t, s, &weir.Request{Key: "a", Limit: 10_000, Duration: time.Hour, Meta: "first"})
	clock.Advance(1)
	mine, err := limits.Reserve(t.Context(), weir.Ask{Strategy: s, Request: r})
	require.NoError(t, err)
	other := r
	other.Cost, other.Meta = 1, "other"
	for range 2000 {
		clock.Advance(1)
		mustRun(t, s, &other)
	}
	require.NoError(t, mine.Cancel(t.Context()))
	entries, err := ops.Hits(t.Context(), s, &r)
	require.NoError(t, err)
	require.Len(t, entries, 2001)
	for i, e := range entries[1:] {
		require.Equal(t, weir.Hit{At: e.At, Cost: 1, Meta: "other"}, e, "entry %d", i)
	}
}

// All compares what is left of a token bucket's burst, and of no tiers, also behind wrappers.
func TestAllSeesThroughWrappers(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	tiers := mustTiers(t, l, weir.Tier{Limit: 3, Duration: time.Second})
	r := weir.Request{Limit: 10, Duration: time.Minute}
	for i, inner := range []weir.Strategy{l.TokenBucket(20), tiers} {
		r.Key = fmt.Sprint("plain", i)
		plain := mustRun(t, limits.AllOf(inner, l.FixedWindow()), &r)
		r.Key = fmt.Sprint("watched", i)
		assert.Equal(t, plain, mustRun(t, limits.AllOf(ops.Around(inner), l.FixedWindow()), &r))
	}
}

// A Return gives back no more than was taken, nothing after a denial, and may be called
// concurrently.
func TestReturnGivesBackWhatWasTaken(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for name, s := range resettable(t, l) {
		t.Run(name, func(t *testing.T) {
			r := &weir.Request{Key: name + "return", Limit: 5, Duration: 10 * time.Second, Cost: 2,
				Meta: "m"}
			res, first, err := ops.Admit(t.Context(), s, r)
			require.NoError(t, err)
			require.True(t, res.Allowed())
			require.True(t, mustRun(t, s, r).Allowed())
			denied, none, err := ops.Admit(t.Context(), s, r)
			require.NoError(t, err)
			require.False(t, denied.Allowed())
			require.NoError(t, none(t.Context(), 2))
			assert.False(t, mustRun(t, s, r).Allowed(), "a denial gave something back")

			clock.Advance(time.Millisecond)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { assert.NoError(t, first(t.Context(), 1)) })
			}
			wg.Wait()
			one := *r
			one.Cost = 1
			admitted := 0
			for range 5 {
				if mustRun(t, s, &one).Allowed() {
					admitted++
				}
			}
			assert.Equal(t, 3, admitted, "2 of 5 stay taken")
		})
	}
}

// A Return in parts gives back as much as one Return of them all, whatever has flowed in or expired
// since. Another admission shows what would be too much.
func TestReturnInPartsGivesBackAsMuchAsOne(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for name, s := range resettable(t, l) {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 0))
			for range slow.N(300, 1000, 10_000) {
				clock.Advance(time.Minute + time.Duration(rnd.Int64N(int64(time.Second))))
				request := func(key string, cost uint64) *weir.Request {
					return &weir.Request{Key: key, Limit: 5, Duration: 10 * time.Second, Cost: cost, Meta: "m"}
				}
				admit := func(cost uint64) (whole, parts ops.Return) {
					var returns []ops.Return
					for _, key := range []string{name + "whole", name + "parts"} {
						_, r, err := ops.Admit(t.Context(), s, request(key, cost))
						require.NoError(t, err)
						returns = append(returns, r)
					}
					return returns[0], returns[1]
				}
				whole, parts := admit(1 + rnd.Uint64N(4))
				clock.Advance(time.Duration(rnd.Int64N(int64(time.Second))))
				admit(1 + rnd.Uint64N(4))
				clock.Advance(time.Duration(rnd.Int64N(int64(12 * time.Second))))
				back := 1 + rnd.Uint64N(4)
				require.NoError(t, whole(t.Context(), back))
				for range back {
					require.NoError(t, parts(t.Context(), 1))
				}
				assert.Equal(t, counted(t, s, request(name+"whole", 1)),
					counted(t, s, request(name+"parts", 1)), "%d given back", back)
			}
		})
	}
}

// The last tokens of an admission flow in last, so those that flowed in already are not given back
// by a second Return either.
func TestPartialReturnsOfATokenBucket(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.TokenBucket(0)
	ask := &weir.Request{Key: "a", Limit: 10, Duration: time.Minute, Cost: 5} // one comes back in 6 s
	_, first, err := ops.Admit(t.Context(), s, ask)
	require.NoError(t, err)
	require.True(t, mustRun(t, s, ask).Allowed())
	clock.Advance(24 * time.Second)
	require.EqualValues(t, 6, counted(t, s, ask), "four are back")
	require.NoError(t, first(t.Context(), 2))
	assert.EqualValues(t, 5, counted(t, s, ask), "one was missing")
	require.NoError(t, first(t.Context(), 3))
	assert.EqualValues(t, 5, counted(t, s, ask), "no other was")
}
