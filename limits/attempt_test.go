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
		attempts[i].Op.Request = weir.Request{Key: "a", Limit: limit, Duration: time.Minute}
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
	assert.EqualValues(t, 2, attempts[1].Op.Result.TotalRequests)
	assert.Nil(t, take(), "too many in flight")
	check(2, 2)
	require.NoError(t, attempts.Refund(t.Context()), "what was denied gives nothing back")
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, second.Release(t.Context()))
	check(2, 0)
	_, err := l.InFlight().Run(t.Context(), &attempts[1].Op.Request) // a lease of another request
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
	attempts[2].Op.Request = weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
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

var errBroken = errors.New("the place stays taken")

func (b *brokenHolder) About() *weir.About {
	return &weir.About{Of: b, InFlight: true,
		Verbs: weir.VerbsOf(weir.OpTake, weir.OpHold, weir.OpRenew, weir.OpRelease)}
}

func (*brokenHolder) Do(_ context.Context, ops []*weir.Op) {
	for _, op := range ops {
		switch op.Verb {
		case weir.OpHold, weir.OpRenew:
			op.Result = weir.Result{State: weir.Allow, TotalRequests: 1}
		case weir.OpRelease:
			op.Err = errBroken
		default:
			op.Err = assert.AnError
		}
	}
}

// A place that could not be given back is lost, as a count is.
func TestAPlaceThatIsNotGivenBackIsLost(t *testing.T) {
	held, err := limits.NewAttempt(new(brokenHolder)).Holding()
	require.NoError(t, err)
	attempts := limits.Attempts{held, limits.NewAttempt(irrevocableFailure{})}
	for i := range attempts {
		attempts[i].Op.Request = weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
	}
	_, err = attempts.Take(t.Context(), nil)
	require.ErrorIs(t, err, assert.AnError)
	require.ErrorIs(t, err, errBroken)
	assert.Equal(t, errBroken, attempts[0].Op.Err)
	assert.True(t, attempts[0].Taken())
	assert.Nil(t, attempts[0].TakeHeld())
}

func TestOnlyAHolderHolds(t *testing.T) {
	_, err := limits.NewAttempt(standing(t).FixedWindow()).Holding()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limits.NewAttempt(keyed(t, "p", standing(t).FixedWindow(), 1, time.Minute)).Holding()
	assert.ErrorIs(t, err, errors.ErrUnsupported, "what it wraps is none")
	counts := newElsewhere(standing(t).InFlight(), nil)
	counts.about.InFlight = true
	_, err = limits.NewAttempt(counts).Holding()
	assert.ErrorIs(t, err, errors.ErrUnsupported, "it cannot hold")
}

// elsewhere is a Strategy of another process, which can give back and not be peeked at. It fails
// with err, unless that is nil.
type elsewhere struct {
	fake
	err error
}

func newElsewhere(s weir.Strategy, err error) *elsewhere {
	e := &elsewhere{err: err}
	e.fake = *newFake(s, func(_ context.Context, op *weir.Op, next func()) {
		if op.Err = e.err; op.Err == nil || op.Verb != weir.OpTake {
			next()
		}
	}, weir.OpTake, weir.OpReturn)
	e.about.Of, e.about.Counts = e, e
	return e
}

// elsewheres are Attempts on strategies elsewhere, with these limits.
func elsewheres(t *testing.T, allowed ...uint64) (limits.Attempts, []*elsewhere) {
	t.Helper()
	var attempts limits.Attempts
	var strategies []*elsewhere
	for _, limit := range allowed {
		e := newElsewhere(standing(t).FixedWindow(), nil)
		m := limits.NewAttempt(e)
		m.Op.Request = weir.Request{Key: "a", Limit: limit, Duration: time.Minute, Cost: 2}
		attempts, strategies = append(attempts, m), append(strategies, e)
	}
	return attempts, strategies
}

func TestWhatIsGivenBackIsNotInTheResult(t *testing.T) {
	attempts, strategies := elsewheres(t, 5, 0)
	_, err := strategies[0].Run(t.Context(), &attempts[0].Op.Request)
	require.NoError(t, err)
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, allowed)
	assert.EqualValues(t, 2, attempts[0].Op.Result.TotalRequests, "of the request before")
	assert.False(t, attempts[0].Taken())
}

func TestAnErrorLeavesNoResult(t *testing.T) {
	attempts, strategies := elsewheres(t, 5)
	_, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, attempts[0].Op.Result.TotalRequests)
	strategies[0].err = errors.New("down")
	_, err = attempts.Take(t.Context(), nil)
	require.ErrorIs(t, err, strategies[0].err)
	assert.Zero(t, attempts[0].Op.Result)
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

func TestALimitIsPromptIfItsStrategyIs(t *testing.T) {
	s := standing(t).FixedWindow()
	late := newFake(s, nil) // it may answer later than its context says
	for _, of := range []weir.Strategy{late, struct{ weir.Strategy }{s}} {
		m, err := weir.NewLimit(of, 1, time.Minute)
		require.NoError(t, err)
		assert.False(t, weir.CounterOf(m).About().Prompt)
	}
	late.about.Prompt = true
	m, err := weir.NewLimit(late, 1, time.Minute)
	require.NoError(t, err)
	assert.True(t, weir.CounterOf(m).About().Prompt)
}

func TestAnAttemptHasTheNumbersOfItsLimit(t *testing.T) {
	a := limits.NewAttempt(standing(t).FixedWindow().Limit(5, time.Minute))
	assert.Equal(t, weir.Tier{Limit: 5, Duration: time.Minute}, a.Tier())
}
