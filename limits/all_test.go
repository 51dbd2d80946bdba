package limits_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/windows"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

type contextKey struct{}

// refundable is a Strategy that admits, and records the contexts and Results of its refunds.
type refundable struct {
	result   weir.Result
	contexts []context.Context
	refunded []weir.Result
	err      error // of a refund
}

func (s *refundable) About() *weir.About {
	return &weir.About{Of: s, Counts: s, Verbs: weir.VerbsOf(weir.OpTake, weir.OpReturn)}
}

func (s *refundable) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *refundable) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		switch op.Verb {
		case weir.OpTake:
			op.Result, op.Err = s.result, nil
		case weir.OpReturn:
			s.contexts, s.refunded = append(s.contexts, ctx), append(s.refunded, op.Result)
			op.Err = s.err
		default:
			op.Err = op.Unsupported(s.About())
		}
	}
}

// strategyFunc is a Strategy that is a function.
type strategyFunc func(ctx context.Context) (*weir.Result, error)

func (f strategyFunc) Run(ctx context.Context, _ *weir.Request) (*weir.Result, error) { return f(ctx) }

// All refunds what it has charged even if the context is done.
func TestAllRefundsAfterTheContextEnded(t *testing.T) {
	failed := errors.New("down")
	for name, last := range map[string]func() (*weir.Result, error){
		"denied": func() (*weir.Result, error) { return &weir.Result{State: weir.Deny}, nil },
		"failed": func() (*weir.Result, error) { return nil, failed },
	} {
		t.Run(name, func(t *testing.T) {
			first := &refundable{result: weir.Result{State: weir.Allow, TotalRequests: 7}}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "value"))
			res, err := limits.AllOf(first, strategyFunc(func(context.Context) (*weir.Result, error) {
				cancel()
				return last()
			})).Run(ctx, &weir.Request{Key: "id"})
			if name == "failed" {
				require.ErrorIs(t, err, failed)
			} else {
				require.NoError(t, err)
				require.False(t, res.Allowed())
			}
			require.Len(t, first.contexts, 1)
			assert.NoError(t, first.contexts[0].Err(), "a refund over the network must not be cut off")
			assert.Equal(t, "value", first.contexts[0].Value(contextKey{}))
			assert.EqualValues(t, 7, first.refunded[0].TotalRequests)
		})
	}
}

func TestAllReportsALostRefund(t *testing.T) {
	failed, lost := errors.New("down"), errors.New("lost")
	first := &refundable{result: weir.Result{State: weir.Allow}, err: lost}
	_, err := limits.AllOf(first, strategyFunc(func(context.Context) (*weir.Result, error) { return nil, failed })).
		Run(t.Context(), &weir.Request{Key: "id"})
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, lost)

	res, err := limits.AllOf(first, strategyFunc(func(context.Context) (*weir.Result, error) {
		return new(weir.Result), nil
	})).
		Run(t.Context(), &weir.Request{Key: "id"})
	require.ErrorIs(t, err, lost)
	assert.Nil(t, res)
}

// The remainder of a token bucket counts from its burst.
func TestAllComparesBursts(t *testing.T) {
	l := standing(t)
	tiers := mustTiers(t, l, weir.Tier{Limit: 1000, Duration: time.Second})
	burst := keyed(t, "burst", l.TokenBucket(20), 100, time.Minute)
	s := limits.AllOf(tiers, keyed(t, "daily", l.FixedWindow(), 50, 24*time.Hour), burst)
	for i := range uint64(20) {
		res := mustRun(t, s, &weir.Request{Key: "id", Limit: 5})
		want := mustPeek(t, burst, &weir.Request{Key: "id"})
		require.Equal(t, i+1, res.TotalRequests)
		if want.Allowed() {
			require.True(t, res.ExpiresAt.Before(want.ExpiresAt), "%+v is not of the bucket", res)
		}
	}
}

func TestAllReportsTheTightestAdmission(t *testing.T) {
	l := standing(t)
	day := keyed(t, "day", l.FixedWindow(), 10, 24*time.Hour)
	minute := keyed(t, "minute", l.FixedWindow(), 3, time.Minute)
	for range 3 { // 1 of 3 leaves less than 1 of 10
		for _, s := range []weir.Strategy{limits.AllOf(day, minute), limits.AllOf(minute, day)} {
			res := mustRun(t, s, &weir.Request{Key: "id"})
			want := mustPeek(t, minute, &weir.Request{Key: "id"})
			if res.Allowed() {
				assert.True(t, res.ExpiresAt.Before(epoch.Add(2*time.Minute)),
					"%+v, not %+v", res, want)
			}
		}
	}
	// Both deny; the daily policy ends later.
	for range 10 {
		require.NoError(t, ops.Charge(t.Context(), day, &weir.Request{Key: "id"}))
	}
	for _, s := range []weir.Strategy{limits.AllOf(day, minute), limits.AllOf(minute, day)} {
		for _, ask := range []func(context.Context, *weir.Request) (*weir.Result, error){s.Run, func(ctx context.Context, r *weir.Request) (*weir.Result, error) { return ops.Peek(ctx, s, r) }} {
			res, err := ask(t.Context(), &weir.Request{Key: "id"})
			require.NoError(t, err)
			require.False(t, res.Allowed())
			assert.Equal(t, epoch.Add(24*time.Hour), res.ExpiresAt)
		}
	}
}

// Results of Tiers and of All say which limit they are held against, and are compared by it.
func TestResultsOfSeveralLimits(t *testing.T) {
	l := standing(t)
	tiers := mustTiers(t, l, weir.Tier{Limit: 3, Duration: time.Second}, weir.Tier{Limit: 40, Duration: time.Minute})
	loose, tight := l.FixedWindow().Limit(100, time.Minute), l.FixedWindow().Limit(2, time.Minute)

	out := mustTake(t, limits.All(loose, tiers.Limit()), "a", 1)
	assert.Equal(t, "tiers, 3 in 1s", out.By.String())
	assert.EqualValues(t, 2, out.Left)
	assert.EqualValues(t, 3, out.Limit)

	out = mustTake(t, limits.All(tiers.Limit(), tight), "b", 1)
	assert.Same(t, tight, out.By, "it has less left than any tier")
	assert.EqualValues(t, 1, out.Left)

	all := limits.All(loose, tight)
	for name, decide := range map[string]func() (*weir.Result, error){
		"Run": func() (*weir.Result, error) { return all.Run(t.Context(), &weir.Request{Key: "c"}) },
		"Peek": func() (*weir.Result, error) {
			return ops.Peek(t.Context(), all, &weir.Request{Key: "d"})
		},
		"Admit": func() (*weir.Result, error) {
			res, _, err := ops.Admit(t.Context(), all, &weir.Request{Key: "e"})
			return res, err
		},
	} {
		res, err := decide()
		require.NoError(t, err)
		assert.EqualValues(t, 2, res.Limit, name)
		assert.EqualValues(t, 1, res.Remaining(0), name)
	}

	d, err := limits.Decide(t.Context(), weir.Ask{Strategy: loose, Request: weir.Request{Key: "f"}},
		weir.Ask{Strategy: tiers, Request: weir.Request{Key: "f"}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, d.Left, "the tier of 3 has the least left")

	attempts := limits.Attempts{limits.NewAttempt(tiers), limits.NewAttempt(l.FixedWindow())}
	for i := range attempts {
		attempts[i].Op.Request = weir.Request{Key: "g", Limit: 1000, Duration: time.Hour}
	}
	_, err = attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, weir.Tier{Limit: 3, Duration: time.Second}, attempts[0].Tier())
	assert.EqualValues(t, 2, attempts[0].Remaining())
	assert.EqualValues(t, 3, attempts[0].Most())
	assert.Equal(t, weir.Tier{Limit: 1000, Duration: time.Hour}, attempts[1].Tier())
	assert.EqualValues(t, 999, attempts[1].Remaining())
	assert.Zero(t, attempts.Binding())
}

// What All takes from one limit before it sees that a period of another one is over is not taken
// and given back, since Stats would count that.
func TestAllWhereAPeriodBegins(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	m := limits.All(l.TokenBucket(0).Limit(100, time.Minute), l.Counter().Limit(100, time.Second))
	for range 10 {
		require.True(t, m.Allow("k"))
		clock.Advance(time.Second)
	}
	assert.EqualValues(t, 20, l.Stats().Allowed)
}

// Of denials the one binds that lasts longest, in whatever order the limits are.
func TestTheLongestDenialOfAllBinds(t *testing.T) {
	l := standing(t)
	long, short := l.FixedWindow().Limit(1, time.Hour), l.FixedWindow().Limit(1, time.Minute)
	for i, m := range []limit{limits.All(long, short), limits.All(short, long)} {
		key := strconv.Itoa(i)
		require.True(t, m.Allow(key))
		out := mustTake(t, m, key, 1)
		assert.False(t, out.Allowed())
		assert.Same(t, long, out.By)
		assert.Greater(t, out.Wait, time.Minute)
	}
}

func TestDecideOfAnAll(t *testing.T) {
	l := standing(t)
	of := func(n uint64) *weir.Limit { return l.SlidingWindow().Limit(n, time.Minute) }
	three := of(3)
	d, err := limits.Decide(t.Context(), limits.All(of(10), of(20)).For("k"), three.For("k"))
	require.NoError(t, err)
	assert.Same(t, three, d.By)
	assert.EqualValues(t, 2, d.Left)
}

// All does not wait in Allow, and its Wait is by the clock of the limiter.
func TestAllWithALeakyBucket(t *testing.T) {
	l := standing(t)
	leaky := l.LeakyBucket(0).Limit(1, time.Hour)
	m := limits.All(l.SlidingWindow().Limit(9, time.Hour), l.LeakyBucket(10).Limit(1, time.Hour))
	require.True(t, m.Allow("k"))
	assert.False(t, m.Allow("k"))
	require.True(t, leaky.Allow("k"))
	out := mustTake(t, leaky, "k", 1)
	assert.Equal(t, time.Hour, out.Wait)
}

// An Attempt of a weir.Limit has what its strategy has.
func TestAttemptOfALimit(t *testing.T) {
	l := standing(t)
	a, b := l.SlidingWindow().Limit(2, time.Minute), l.SlidingWindow().Limit(1, time.Minute)
	require.True(t, b.Allow("k"))
	attempts := limits.Attempts{limits.NewAttempt(a), limits.NewAttempt(b)}
	for i := range attempts {
		attempts[i].Op.Request.Key = "k"
	}
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	out, err := a.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.Zero(t, out.TotalRequests, "nothing was taken")
	_, err = limits.NewAttempt(l.InFlight().Limit(1)).Holding()
	require.NoError(t, err)
}

// The errors of a limit that finds no series are those of several, too.
func TestSeveralLimitsBeyondTheBound(t *testing.T) {
	l := standing(t)
	for i := range windows.MaxSeries {
		weir.CounterOf(l.SlidingWindow().Limit(1, time.Minute).Named(strconv.Itoa(i)))
	}
	a := l.SlidingWindow().Limit(1, time.Minute)
	_, err := limits.All(a, l.SlidingLog().Limit(1, time.Minute)).Take(t.Context(), "k", 1)
	require.ErrorIs(t, err, weir.ErrLimit)
	_, err = limits.Reserve(t.Context(), a.For("k"))
	require.ErrorIs(t, err, weir.ErrLimit)
	_, err = limits.Decide(t.Context(), a.For("k"), a.For("l"))
	require.ErrorIs(t, err, weir.ErrLimit)
}

func TestAllOfNothingPanics(t *testing.T) {
	assert.Panics(t, func() { limits.All() })
}

func TestAllHasItsNumbers(t *testing.T) {
	s := weir.CounterOf(limits.All(standing(t).SlidingWindow().Limit(10, time.Minute)))
	for _, of := range []struct {
		n uint64
		d time.Duration
	}{{1, time.Hour}, {1, 0}, {0, time.Hour}} {
		_, err := weir.NewLimit(s, of.n, of.d)
		require.ErrorIs(t, err, weir.ErrLimit)
		assert.EqualError(t, err, "weir: bad limit: "+ops.Name(s)+" has its numbers already")
	}
}

func TestAllReportsNoUnlimitedPolicyAsTheTightest(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := limits.AllOf(
		keyed(t, "none", l.FixedWindow(), math.MaxUint64, time.Hour),
		keyed(t, "tight", l.FixedWindow(), 3, time.Minute),
	)
	res := mustRun(t, s, &weir.Request{Key: "a"})
	assert.Equal(t, epoch.Add(time.Minute), res.ExpiresAt, "the minute's end")
}

// A decision on callers that are known to all limits allocates nothing.
func TestAllAllocatesNothing(t *testing.T) {
	l := standing(t)
	for _, n := range []uint64{1, 1 << 40} { // denied, and admitted
		both := limits.All(l.FixedWindow().Limit(n, time.Hour), l.SlidingWindow().Limit(n, time.Hour))
		for name, call := range map[string]func(){
			"Allow": func() { both.Allow("10.0.0.7") },
			"Take":  func() { _, _ = both.Take(t.Context(), "10.0.0.7", 1) },
		} {
			call()
			assert.Zero(t, testing.AllocsPerRun(100, call), "%s, limit %d", name, n)
		}
	}
}

// A retry at the ExpiresAt of an All passes, and no earlier one.
func TestDenialsOfAllAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{SweepEvery: 24 * time.Hour})
		require.NoError(t, err)
		defer l.Close()
		second := func(s interface {
			Limit(uint64, time.Duration) *weir.Limit
		}) *weir.Limit {
			return s.Limit(1, time.Second)
		}
		for i, tight := range []*weir.Limit{
			second(l.FixedWindow()), second(l.SlidingWindow()), second(l.Counter()),
			second(l.TokenBucket(0)),
		} {
			for j, m := range []limit{
				limits.All(l.TokenBucket(0).Limit(100, time.Hour), tight),
				limits.All(tight, l.TokenBucket(0).Limit(100, time.Hour)),
			} {
				key := fmt.Sprint(i, j)
				require.True(t, m.Allow(key))
				denied := mustTake(t, m, key, 1)
				require.False(t, denied.Allowed(), key)
				time.Sleep(time.Until(denied.ExpiresAt) - 1)
				require.False(t, m.Allow(key), "%s a nanosecond before", key)
				time.Sleep(1)
				assert.True(t, m.Allow(key), "%s at the instant named", key)
			}
		}
	})
}

// Callers of an All wait in one line, in order of arrival, and a cost that one of its limits can
// never admit fails at once.
func TestCallersOfAllWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		s := limits.AllOf(l.FixedWindow(), l.TokenBucket(3))
		var order []int
		var mu sync.Mutex
		var g errgroup.Group
		for i := range 8 {
			g.Go(func() error {
				time.Sleep(time.Duration(i) * time.Microsecond)
				_, err := weir.Wait(t.Context(), s, &weir.Request{Key: "k", Limit: 1, Duration: time.Second})
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				return err
			})
		}
		time.Sleep(time.Millisecond)
		waited, err := weir.Wait(t.Context(), s,
			&weir.Request{Key: "k", Limit: 5, Duration: time.Second, Cost: 4})
		require.ErrorIs(t, err, weir.ErrLimit)
		assert.Zero(t, waited)
		_, err = weir.Wait(t.Context(), limits.AllOf(l.FixedWindow()),
			&weir.Request{Key: "other", Limit: 1, Duration: time.Second})
		require.NoError(t, err, "another All has a line of its own")
		require.NoError(t, g.Wait())
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
	})
}

func TestAllHoldsNothing(t *testing.T) {
	s := limits.AllOf(standing(t).InFlight())
	r := &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
	_, err := weir.Hold(t.Context(), s, r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = weir.HoldWait(t.Context(), s, r)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// What a Limit is made of already is refused, whether All or something around it.
func TestNoLimitOfALimit(t *testing.T) {
	one := standing(t).SlidingWindow().Limit(10, time.Minute)
	both := limits.All(one)
	for _, s := range []weir.Strategy{one, ops.Around(one), both, ops.Around(both)} {
		_, err := weir.NewLimit(s, 0, 0)
		require.ErrorIs(t, err, weir.ErrLimit)
	}
}

// owned is a Strategy whose tiers are its own.
type owned struct{ tiers []weir.Tier }

func (s *owned) About() *weir.About {
	return &weir.About{Of: s, Tiers: s.tiers, Verbs: weir.VerbsOf(weir.OpTake)}
}

func (s *owned) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *owned) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		op.Result = weir.Result{State: weir.Allow, TotalRequests: 1, Limit: 5}
	}
}

// The tier that binds is the shortest of those with the limit, and the tiers stay as they are.
func TestTierOfAnAttempt(t *testing.T) {
	tiers := []weir.Tier{{Limit: 9, Duration: time.Second}, {Limit: 5, Duration: time.Minute},
		{Limit: 5, Duration: time.Hour}}
	attempts := limits.Attempts{limits.NewAttempt(&owned{slices.Clone(tiers)})}
	attempts[0].Op.Request = weir.Request{Key: "k", Limit: 7, Duration: time.Second}
	assert.Equal(t, weir.Tier{Limit: 7, Duration: time.Second}, attempts[0].Tier(), "undecided")
	_, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, tiers[1], attempts[0].Tier())
	assert.Equal(t, tiers, attempts[0].About().Tiers)
}

// running embeds a Counter, and has a Run of its own.
type running struct {
	*weir.WindowCounter
	runs *int
}

func (s running) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	*s.runs++
	return s.WindowCounter.Run(ctx, r)
}

func TestAWrapperIsRun(t *testing.T) {
	runs := 0
	s := running{standing(t).FixedWindow(), &runs}
	_, err := limits.Decide(t.Context(), ask(s, "k", 5, 1))
	require.NoError(t, err)
	assert.Equal(t, 1, runs)
}

// Allow of limits of which some cannot decide is as that of each: true if all of those are
// fail-open, and no other one denies.
func TestAllowOfAllFailsOpen(t *testing.T) {
	l := standing(t)
	fine := l.SlidingWindow().Limit(1, time.Minute)
	broken := weirtest.FailAll(errors.New("down")).Limit(5, time.Minute)
	assert.False(t, limits.All(fine, broken).Allow("k"))
	assert.False(t, limits.All(fine.FailOpen(), broken).Allow("k"), "another one is fail-open")
	open := limits.All(fine, broken.FailOpen())
	assert.True(t, open.Allow("k"))
	assert.True(t, open.AllowBytes([]byte("k")))
	assert.False(t, open.Allow(""), "the key is at fault")
	assert.False(t, limits.All(fine.FailOpen(), broken.FailOpen()).Allow(""))
	_, err := open.Take(t.Context(), "k", 1)
	require.Error(t, err)
	require.True(t, fine.Allow("k"), "what could not be decided was given back")
	assert.False(t, open.Allow("k"), "the other one denies")
}
