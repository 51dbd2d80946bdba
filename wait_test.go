package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
)

func ExampleWait() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	s := limiter.TokenBucket(1) // one token, refilled every 20 ms
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		_, err := weir.Wait(ctx, s, &weir.Request{Key: "upstream", Limit: 50, Duration: time.Second})
		fmt.Println(err)
	}
	_, err = weir.Wait(ctx, s, &weir.Request{Key: "upstream", Limit: 1, Duration: time.Hour, Cost: 2})
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// weir: bad limit: a cost of 2 can never pass
}

func ExampleResult_Remaining() {
	limiter := limiterAt(noon())
	defer limiter.Close()

	res, err := limiter.CheckRate("10.0.0.7", time.Minute.Milliseconds(), 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Remaining(5))
	// Output: 4
}

func TestRemainingIsNeverNegative(t *testing.T) {
	for _, tt := range []struct{ total, limit, want uint64 }{
		{0, 0, 0}, {0, 3, 3}, {2, 3, 1}, {3, 3, 0}, {4, 3, 0}, {^uint64(0), 3, 0},
		{1, ^uint64(0), ^uint64(0) - 1},
	} {
		assert.Equal(t, tt.want, weir.Result{TotalRequests: tt.total}.Remaining(tt.limit), "%+v", tt)
	}
}

func TestWaitSleepsUntilTheInstantTheDenial(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		r := &weir.Request{Key: "a", Limit: 2, Duration: time.Minute}
		for _, want := range []time.Duration{0, 0, time.Minute, 0, time.Minute} {
			waited, err := weir.Wait(t.Context(), s, r)
			require.NoError(t, err)
			assert.Equal(t, want, waited)
		}
	})
}

// Where nobody waits for the key, a wait is an Allow.
func TestWaitOfAKnownCallerAllocatesNothing(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, m := range map[string]*weir.Limit{
		"FixedWindow":   l.FixedWindow().Limit(1<<40, time.Hour),
		"SlidingWindow": l.SlidingWindow().Limit(1<<40, time.Hour),
		"TokenBucket":   l.TokenBucket(1<<20).Limit(1<<40, time.Hour),
		"Counter":       l.Counter().Limit(1<<40, time.Hour),
		"Calendar":      l.Calendar(weir.Day, time.UTC).Limit(1 << 40),
	} {
		require.NoError(t, m.Wait(ctx, "a"))
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = m.Wait(ctx, "a") }), name)
		r := &weir.Request{Key: "a"}
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = weir.Wait(ctx, m, r) }), name)
	}
	busy, others := l.TokenBucket(1).Limit(1, 24*time.Hour), l.TokenBucket(1).Limit(1<<30, time.Second)
	require.NoError(t, busy.Wait(ctx, "a"))
	var waits errgroup.Group
	waits.Go(func() error { return busy.Wait(ctx, "a") })
	require.Eventually(t, turns.Any, time.Minute, time.Millisecond)
	require.NoError(t, others.Wait(ctx, "a"))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = others.Wait(ctx, "a") }), "others wait elsewhere")
	cancel()
	assert.ErrorIs(t, waits.Wait(), context.Canceled)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.SlidingLog()
		r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
		_, err := weir.Wait(t.Context(), s, r)
		require.NoError(t, err)

		near, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		waited, err := weir.Wait(near, s, r)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, waited, "the deadline is nearer than the instant")
		assert.NoError(t, near.Err())

		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		waited, err = weir.Wait(canceled, s, r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, waited)
		fresh := &weir.Request{Key: "b", Limit: 1, Duration: time.Minute}
		_, err = weir.Wait(canceled, s, fresh)
		assert.ErrorIs(t, err, context.Canceled, "no caller waits")
		res := weir.MustPeek(t, s, fresh)
		assert.True(t, res.Allowed(), "an error counts nothing")

		enough, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waited, err = weir.Wait(enough, s, r)
		assert.NoError(t, err)
		assert.Equal(t, 59*time.Second, waited)
	})
}

func TestWaitReturnsImpossibleRequests(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		_, err := weir.Wait(t.Context(), l.FixedWindow(),
			&weir.Request{Key: "a", Limit: 3, Duration: time.Second,
				Cost: 4})
		assert.ErrorIs(t, err, weir.ErrLimit)
		_, err = weir.Wait(t.Context(), l.FixedWindow(), &weir.Request{Key: "a", Duration: time.Second})
		assert.EqualError(t, err, "weir: bad limit: a cost of 1 can never pass")
		_, err = weir.Wait(t.Context(), l.FixedWindow(), &weir.Request{Limit: 3, Duration: time.Second})
		assert.ErrorIs(t, err, weir.ErrID)
	})
}

// Every waiter is admitted in the end, and no window exceeds its limit.
func TestWaitersAllPass(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s, start := l.FixedWindow(), time.Now()
		var all errgroup.Group
		for range 50 {
			all.Go(func() error {
				_, err := weir.Wait(t.Context(), s, &weir.Request{Key: "a", Limit: 5, Duration: time.Second})
				return err
			})
		}
		require.NoError(t, all.Wait())
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)
		assert.Greater(t, time.Since(start), 8*time.Second)
	})
}

// behind names each of its instants in turn, and denies until its clock, which is late, has passed
// the last one.
type behind struct {
	late     time.Duration
	instants []time.Duration
	tries    *[]time.Duration // when it was asked
}

func (s behind) Run(context.Context, *weir.Request) (*weir.Result, error) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a synctest bubble
	*s.tries = append(*s.tries, time.Since(start))
	for _, instant := range s.instants {
		if time.Since(start)-s.late < instant {
			return &weir.Result{ExpiresAt: start.Add(instant)}, nil
		}
	}
	return &weir.Result{State: weir.Allow}, nil
}

func TestWaitBacksOffWhereTheClockOfTheStrategyIsBehind(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		what     string
		late     time.Duration
		instants []time.Duration
		want     []time.Duration // when Wait asks
	}{
		{"a clock that is not behind is asked at the instant",
			0, []time.Duration{time.Minute}, []time.Duration{0, time.Minute}},
		{"an instant that is a millisecond away counts as any other",
			2 * ms, []time.Duration{ms}, []time.Duration{0, ms, 2 * ms, 4 * ms}},
		{"after a millisecond, and then twice as long each time",
			10 * ms, []time.Duration{60 * ms},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 67 * ms, 75 * ms}},
		{"after a millisecond again where a later instant is named",
			10 * ms, []time.Duration{60 * ms, 100 * ms},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 67 * ms, 75 * ms,
				100 * ms, 101 * ms, 103 * ms, 107 * ms, 115 * ms}},
		{"at a later instant that is nearer than a millisecond",
			2 * ms, []time.Duration{60 * ms, 63*ms + ms/2},
			[]time.Duration{0, 60 * ms, 61 * ms, 63 * ms, 63*ms + ms/2, 64*ms + ms/2, 66*ms + ms/2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var tries []time.Duration
			waited, err := weir.Wait(t.Context(), behind{tt.late, tt.instants, &tries},
				&weir.Request{Key: "a"})
			require.NoError(t, err, tt.what)
			assert.Equal(t, tt.want, tries, tt.what)
			assert.Equal(t, tt.want[len(tt.want)-1], waited, tt.what)
		})
	}
}

func TestWaitReturnsTheErrorOfTheStrategy(t *testing.T) {
	down := errors.New("down")
	_, err := weir.Wait(t.Context(), failing{down}, &weir.Request{Key: "a"})
	assert.ErrorIs(t, err, down)
}

type failing struct{ err error }

func (s failing) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, s.err }
