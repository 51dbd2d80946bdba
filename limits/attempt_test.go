package limits_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// holds is an Attempt on work in flight and one on requests, for one key.
func holds(t *testing.T, l *weir.Limiter, places, rate uint64) limits.Attempts {
	t.Helper()
	held, err := limits.NewAttempt(l.InFlight()).Holding()
	require.NoError(t, err)
	attempts := limits.Attempts{limits.NewAttempt(l.FixedWindow()), held}
	for i, limit := range []uint64{rate, places} {
		attempts[i].Request = weir.Request{Key: "a", Limit: limit, Duration: time.Minute}
	}
	return attempts
}

// bothCount returns what both strategies count.
func bothCount(t *testing.T, l *weir.Limiter) (requests, inFlight uint64) {
	t.Helper()
	r := &weir.Request{Key: "a", Limit: 1000, Duration: time.Minute}
	first := mustPeek(t, l.FixedWindow(), r)
	second := mustPeek(t, l.InFlight(), r)
	return first.TotalRequests - 1, second.TotalRequests - 1
}

func TestLimitsHoldWorkInFlight(t *testing.T) {
	l := standing(t)
	attempts := holds(t, l, 2, 3)
	check := func(requests, inFlight uint64) {
		t.Helper()
		r, f := bothCount(t, l)
		assert.Equal(t, []uint64{requests, inFlight}, []uint64{r, f})
	}
	take := func() *weir.Held {
		t.Helper()
		allowed, err := attempts.Take(t.Context(), nil)
		require.NoError(t, err)
		held := attempts[1].TakeHeld()
		assert.Equal(t, allowed, held != nil)
		assert.Nil(t, attempts[1].TakeHeld(), "it is taken once")
		return held
	}
	first, second := take(), take()
	check(2, 2)
	assert.EqualValues(t, 2, attempts[1].Result.TotalRequests)
	assert.Nil(t, take(), "too many in flight")
	check(2, 2)
	require.NoError(t, attempts.Refund(t.Context()), "what was denied gives nothing back")
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, second.Release(t.Context()))
	check(2, 0)
	_, err := l.InFlight().Run(t.Context(), &attempts[1].Request) // a lease of another request
	require.NoError(t, err)
	third := take()
	assert.False(t, attempts[1].Taken(), "it is no longer theirs")
	require.NoError(t, attempts.Refund(t.Context()))
	check(2, 2)
	require.NoError(t, third.Release(t.Context()))
	check(2, 1)
	require.NotNil(t, take())
	assert.Nil(t, take(), "too many requests")
	check(3, 2)
}

// What is not taken is given back with the other limits, by Refund and if another one fails.
func TestLimitsGivePlacesBack(t *testing.T) {
	l := standing(t)
	attempts := holds(t, l, 2, 3)
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, allowed)
	require.NoError(t, attempts.Refund(t.Context()))
	requests, inFlight := bothCount(t, l)
	assert.Equal(t, []uint64{0, 0}, []uint64{requests, inFlight})
	assert.Nil(t, attempts[1].TakeHeld())

	attempts = append(attempts, limits.NewAttempt(irrevocableFailure{}))
	attempts[2].Request = weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	_, err = attempts.Take(t.Context(), nil)
	require.ErrorIs(t, err, assert.AnError)
	requests, inFlight = bothCount(t, l)
	assert.Equal(t, []uint64{0, 0}, []uint64{requests, inFlight})
	assert.Nil(t, attempts[1].TakeHeld())
}

// irrevocableFailure is a Strategy that decides last, and fails.
type irrevocableFailure struct{}

func (irrevocableFailure) Run(context.Context, *weir.Request) (*weir.Result, error) {
	return nil, assert.AnError
}

// brokenHolder admits, and can take nothing back.
type brokenHolder struct{ irrevocableFailure }

func (brokenHolder) Acquire(context.Context, *weir.Request) (*weir.Result, weir.Place, error) {
	return &weir.Result{State: weir.Allow, TotalRequests: 1}, brokenPlace{}, nil
}

type brokenPlace struct{}

var errBroken = errors.New("the place stays taken")

func (brokenPlace) Renew(context.Context) (bool, error) { return true, nil }
func (brokenPlace) Release(context.Context) error       { return errBroken }

// A place that could not be given back is lost, as a count is.
func TestAPlaceThatIsNotGivenBackIsLost(t *testing.T) {
	held, err := limits.NewAttempt(brokenHolder{}).Holding()
	require.NoError(t, err)
	attempts := limits.Attempts{held, limits.NewAttempt(irrevocableFailure{})}
	for i := range attempts {
		attempts[i].Request = weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
	}
	_, err = attempts.Take(t.Context(), nil)
	require.ErrorIs(t, err, assert.AnError)
	require.ErrorIs(t, err, errBroken)
	assert.Equal(t, errBroken, attempts[0].Err)
	assert.True(t, attempts[0].Taken())
	assert.Nil(t, attempts[0].TakeHeld())
}

func TestOnlyAHolderHolds(t *testing.T) {
	_, err := limits.NewAttempt(standing(t).FixedWindow()).Holding()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limits.NewAttempt(keyed(t, "p", standing(t).FixedWindow(), 1, time.Minute)).Holding()
	assert.ErrorIs(t, err, errors.ErrUnsupported, "what it wraps is none")
}

// elsewhere is a Strategy of another process, which can give back and not be peeked at. It fails
// with err, unless that is nil.
type elsewhere struct {
	weir.Strategy
	weir.Refunder
	err error
}

func (e *elsewhere) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if e.err != nil {
		return nil, e.err
	}
	return e.Strategy.Run(ctx, r)
}

// elsewheres are Attempts on strategies elsewhere, with these limits.
func elsewheres(t *testing.T, allowed ...uint64) (limits.Attempts, []*elsewhere) {
	t.Helper()
	var attempts limits.Attempts
	var strategies []*elsewhere
	for _, limit := range allowed {
		s := standing(t).FixedWindow()
		e := &elsewhere{s, s, nil}
		m := limits.NewAttempt(e)
		m.Request = weir.Request{Key: "a", Limit: limit, Duration: time.Minute, Cost: 2}
		attempts, strategies = append(attempts, m), append(strategies, e)
	}
	return attempts, strategies
}

func TestWhatIsGivenBackIsNotInTheResult(t *testing.T) {
	attempts, _ := elsewheres(t, 5, 0)
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	assert.Zero(t, attempts[0].Result.TotalRequests)
	assert.False(t, attempts[0].Taken())
}

func TestAnErrorLeavesNoResult(t *testing.T) {
	attempts, strategies := elsewheres(t, 5)
	_, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, attempts[0].Result.TotalRequests)
	strategies[0].err = errors.New("down")
	_, err = attempts.Take(t.Context(), nil)
	require.ErrorIs(t, err, strategies[0].err)
	assert.Zero(t, attempts[0].Result)
}

func TestNothingIsToleratedOnceTheContextHasEnded(t *testing.T) {
	attempts, strategies := elsewheres(t, 5)
	strategies[0].err = errors.New("down")
	tolerated := func(error) bool { return true }
	ctx, end := context.WithCancel(t.Context())
	allowed, err := attempts.Take(ctx, tolerated)
	require.NoError(t, err)
	assert.True(t, allowed)
	end()
	allowed, err = attempts.Take(ctx, tolerated)
	require.ErrorIs(t, err, strategies[0].err)
	assert.False(t, allowed)
}

func TestCanRefund(t *testing.T) {
	l := standing(t)
	runs := limits.NewAttempt(struct{ weir.Strategy }{l.FixedWindow()})
	plain := limits.NewAttempt(l.FixedWindow())
	held, err := limits.NewAttempt(l.InFlight()).Holding()
	require.NoError(t, err)
	assert.False(t, runs.CanRefund())
	assert.True(t, plain.CanRefund())
	assert.True(t, held.CanRefund())
}

// late is a Strategy that may answer later than its context says.
type late struct{ weir.Strategy }

func (late) Prompt() bool { return false }

func TestALimitIsPromptIfItsStrategyIs(t *testing.T) {
	s := standing(t).FixedWindow()
	for _, of := range []weir.Strategy{late{s}, struct{ weir.Strategy }{s}} {
		m, err := weir.NewLimit(of, 1, time.Minute)
		require.NoError(t, err)
		assert.False(t, m.Unwrap().(interface{ Prompt() bool }).Prompt())
	}
}
