package verify

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// overlapping takes a cost of 5, and then concurrently refunds or resets it, takes 1 more, and
// advances into the next window of 1 ms. It returns the Results of Peek and Run for 1 more.
func overlapping(t *testing.T, round int, s weir.Strategy, clock *movingClock,
	change func(context.Context, *weir.Request, *weir.Result) error) (peeked, ran *weir.Result) {
	r := weir.Request{Key: "id", Limit: 1000, Duration: time.Millisecond}
	five := r
	five.Cost = 5
	ctx := t.Context()
	taken, err := s.Run(ctx, &five)
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(uint64(round), 0))
	var g errgroup.Group
	start := func(f func() error) {
		pause := rnd.IntN(20)
		g.Go(func() error {
			for range pause {
				runtime.Gosched()
			}
			return f()
		})
	}
	start(func() error { return change(ctx, &five, taken) })
	start(func() error {
		_, err := s.Run(ctx, &r)
		return err
	})
	start(func() error {
		clock.ms.Add(1)
		return nil
	})
	require.NoError(t, g.Wait())
	peeked, err = ops.Peek(ctx, s, &r)
	require.NoError(t, err)
	ran, err = s.Run(ctx, &r)
	require.NoError(t, err)
	return peeked, ran
}

// forgetful is a sliding window that loses refunds once the next window has begun.
type forgetful struct {
	*weir.WindowCounter
	about *weir.About
	now   func() time.Time
}

func (s *forgetful) About() *weir.About { return s.about }

func (s *forgetful) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		if op.Verb != weir.OpReturn || s.now().Add(op.Duration).Before(op.Result.ExpiresAt) {
			_ = weir.Do(ctx, s.WindowCounter, op)
		}
	}
}

// lostRefunds returns the number of rounds in which a refund at a window's edge is missing from the
// count.
func lostRefunds(t *testing.T, rounds int,
	wrap func(*weir.WindowCounter, func() time.Time) weir.Strategy) (lost int) {
	for round := range rounds {
		var clock movingClock
		l, err := weir.New(weir.Config{Now: clock.now, SweepEvery: still})
		require.NoError(t, err)
		s := wrap(l.SlidingWindow(), clock.now)
		refund := func(ctx context.Context, r *weir.Request, taken *weir.Result) error {
			return ops.Refund(ctx, s, r, taken)
		}
		peeked, ran := overlapping(t, round, s, &clock, refund)
		require.Equal(t, peeked, ran, "Peek before Run")
		// In the first millisecond of a window the whole previous window counts, so the 1 taken counts
		// wherever it fell.
		if ran.TotalRequests != 2 {
			lost++
		}
		l.Close()
	}
	return lost
}

func TestRefundsAtAWindowsEdgeAreNotLost(t *testing.T) {
	lost := lostRefunds(t, slow.N(500, 10_000, 100_000),
		func(s *weir.WindowCounter, _ func() time.Time) weir.Strategy { return s })
	require.Zero(t, lost)
}

func TestRefundsControlForgetfulIsRejected(t *testing.T) {
	lost := lostRefunds(t, 1000,
		func(s *weir.WindowCounter, now func() time.Time) weir.Strategy {
			f := &forgetful{WindowCounter: s, now: now}
			f.about = s.About().By(f)
			return f
		})
	require.Positive(t, lost)
}

func TestResetsAtAWindowsEdgeAreNotLost(t *testing.T) {
	for round := range slow.N(500, 10_000, 100_000) {
		var clock movingClock
		l, err := weir.New(weir.Config{Now: clock.now, SweepEvery: still})
		require.NoError(t, err)
		s := l.SlidingWindow()
		peeked, ran := overlapping(t, round, s, &clock,
			func(ctx context.Context, r *weir.Request, _ *weir.Result) error {
				return ops.Reset(ctx, s, r)
			})
		require.Equal(t, peeked, ran, "Peek before Run")
		require.LessOrEqual(t, ran.TotalRequests, uint64(2),
			"the 5 were reset; only the 1 may have come later")
		l.Close()
	}
}

// A Seed that is delayed after reading the clock until its period has ended has no effect on the
// next one.
func TestSeedDelayedPastItsPeriodHasNoEffect(t *testing.T) {
	for _, s := range subjects() {
		if s.name == "Tiers" {
			continue // the instant belongs to one tier, and others count longer
		}
		t.Run(s.name, func(t *testing.T) {
			for readings := range int64(3) {
				clock := newHold()
				strategy := s.make(newLimiter(t, weir.Config{Now: clock.now, SweepEvery: still}),
					clock.now)
				r := &weir.Request{Key: "id", Limit: 5, Duration: 10 * time.Millisecond}
				counted, err := strategy.Run(t.Context(),
					&weir.Request{Key: "other", Limit: 5, Duration: r.Duration,
						Cost: 2})
				require.NoError(t, err)
				clock.skip.Store(readings)
				var g errgroup.Group
				g.Go(func() error {
					err := ops.Seed(context.WithoutCancel(t.Context()), strategy, r, counted)
					clock.release()
					return err
				})
				<-clock.held
				clock.ms.Store(counted.ExpiresAt.UnixMilli())
				close(clock.resume)
				require.NoError(t, g.Wait())
				res, err := strategy.Run(t.Context(), r)
				require.NoError(t, err)
				require.EqualValues(t, 1, res.TotalRequests, "held after %d readings", readings)
			}
		})
	}
}
