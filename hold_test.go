package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// remote is a Holder whose places are leases, as those of another process.
type remote struct {
	*weir.InFlight
	down                      *atomic.Bool  // Renew fails
	takes                     time.Duration // a Renew
	renewals, tries, underway *atomic.Int64
	mostUnderway              *atomic.Int64
	says                      *weir.About
}

func holdElsewhere(l *weir.Limiter) *remote {
	n := func() *atomic.Int64 { return new(atomic.Int64) }
	s := &remote{l.InFlight(), new(atomic.Bool), 0, n(), n(), n(), n(), new(weir.About)}
	*s.says = *s.InFlight.About().By(s)
	return s
}

func (s *remote) About() *weir.About { return s.says }

func (s *remote) Do(ctx context.Context, all []*weir.Op) {
	for _, op := range all {
		p, _ := op.Receipt.Of.(*lease)
		switch op.Verb {
		case weir.OpHold:
			s.tries.Add(1)
			res, giveBack, err := ops.Admit(ctx, s.InFlight, &op.Request)
			op.Err, op.Receipt = err, weir.Receipt{}
			if err == nil {
				op.Result = *res
			}
			if err == nil && res.Allowed() {
				op.Receipt = weir.Receipt{Of: &lease{of: s, r: op.Request, giveBack: giveBack}}
			}
		case weir.OpRenew:
			held, err := p.Renew(ctx)
			op.Err, op.Result = err, weir.Result{}
			if held {
				op.Result.State = weir.Allow
			}
		case weir.OpRelease:
			op.Err = p.Release(ctx)
		default:
			_ = weir.Do(ctx, s.InFlight, op)
		}
	}
}

type lease struct {
	of       *remote
	r        weir.Request
	giveBack func(context.Context, uint64) error
	inside   atomic.Int32
}

var errDown = errors.New("the store is down")

func (p *lease) Renew(ctx context.Context) (held bool, err error) {
	defer p.enter()()
	weir.StoreMax(p.of.mostUnderway, p.of.underway.Add(1))
	defer p.of.underway.Add(-1)
	p.of.renewals.Add(1)
	time.Sleep(p.of.takes) // in a bubble
	if p.of.down.Load() {
		return false, errDown
	}
	if err := p.giveBack(ctx, max(1, p.r.Cost)); err != nil {
		return false, err
	}
	res, giveBack, err := ops.Admit(ctx, p.of.InFlight, &p.r)
	if err == nil && res.Allowed() {
		p.giveBack = giveBack
	}
	return err == nil && res.Allowed(), err
}

func (p *lease) Release(ctx context.Context) error {
	defer p.enter()()
	return p.giveBack(ctx, max(1, p.r.Cost))
}

// enter panics if another call of the place is under way.
func (p *lease) enter() (leave func()) {
	if p.inside.Add(1) > 1 {
		panic("two calls of one place at a time")
	}
	return func() { p.inside.Add(-1) }
}

func noRenewers(t *testing.T) {
	t.Helper()
	assert.Zero(t, renewal.Renewers(), "no renewer is left")
}

func TestPlacesElsewhereAreRenewed(t *testing.T) {
	defer noRenewers(t)
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := holdElsewhere(l)
		r := &weir.Request{Key: "a", Limit: 3, Duration: 30 * time.Second, Cost: 2}
		h := mustHold(t, weir.KeyedFor("p", s, 3, 30*time.Second), &weir.Request{Key: "a", Cost: 2})
		inside := *r
		inside.Key = weir.JoinKey("p", "a")
		// no look at the instant of a renewal, which gives back and takes again
		time.Sleep(time.Second / 2)
		for range 51 {
			time.Sleep(7 * time.Second)
			require.EqualValues(t, 2, weir.Counted(t, s.InFlight, &inside))
		}
		assert.EqualValues(t, 35, s.renewals.Load(), "three in a Duration")
		select {
		case <-h.Lost():
			t.Error("it is held")
		default:
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			require.NoError(t, h.Release(ended))
			require.Zero(t, weir.Counted(t, s.InFlight, &inside))
		}
		time.Sleep(time.Hour)
		assert.EqualValues(t, 35, s.renewals.Load())
	})
}

// An outage shorter than seven twelfths of the lease is not noticed, if calls fail at once.
func TestRenewalsAreRepeatedAfterAnError(t *testing.T) {
	defer noRenewers(t)
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := holdElsewhere(l)
		r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
		h := mustHold(t, s, r)
		// no try at the instant of a renewal, which gives back and takes again
		time.Sleep(time.Second / 2)
		for range 3 {
			time.Sleep(time.Second)
			s.down.Store(true)
			time.Sleep(34 * time.Second)
			s.down.Store(false)
			for range 30 {
				time.Sleep(time.Second)
				deniesHold(t, s, r)
			}
		}
		require.NoError(t, h.Release(t.Context()))
	})
}

// A place whose lease has ended is taken again, if it was not given away.
func TestLost(t *testing.T) {
	defer noRenewers(t)
	for name, given := range map[string]bool{"given away": true, "taken again": false} {
		t.Run(name, func(t *testing.T) {
			weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
				s := holdElsewhere(l)
				r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
				h := mustHold(t, s, r)
				s.down.Store(true)
				time.Sleep(r.Duration)
				var other *weir.Held
				if given {
					other = mustHold(t, s, r)
				} else {
					require.Zero(t, weir.Counted(t, s.InFlight, r))
				}
				s.down.Store(false)
				time.Sleep(10 * time.Second)
				select {
				case <-h.Lost():
					assert.True(t, given)
				default:
					assert.False(t, given)
				}
				deniesHold(t, s, r)
				require.NoError(t, h.Release(t.Context()))
				if given {
					deniesHold(t, s, r)
					require.NoError(t, other.Release(t.Context()))
				}
				assert.Zero(t, weir.Counted(t, s.InFlight, r))
			})
		})
	}
}

// heldSince returns the counts of the process since before.
func heldSince(before renewal.Stats) renewal.Stats {
	now := renewal.Read()
	return renewal.Stats{Held: now.Held - before.Held, Lapsed: now.Lapsed - before.Lapsed,
		Waits: now.Waits - before.Waits}
}

// A place elsewhere is held until it is released or lost, and a place that is lost counts once.
func TestCountsOfPlacesElsewhere(t *testing.T) {
	defer noRenewers(t)
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s, before := holdElsewhere(l), renewal.Read()
		counted := func(held int64, lapsed uint64) {
			t.Helper()
			require.Equal(t, renewal.Stats{Held: held, Lapsed: lapsed}, heldSince(before))
		}
		r := &weir.Request{Key: "a", Limit: 3, Duration: time.Minute, Cost: 3}
		first := mustHold(t, s, r)
		other := mustHold(t, s, &weir.Request{Key: "b", Limit: 1, Duration: time.Hour})
		deniesHold(t, s, r)
		counted(2, 0)
		s.down.Store(true)
		time.Sleep(r.Duration)
		counted(2, 0) // as far as is known
		second := mustHold(t, s, r)
		counted(3, 0)
		s.down.Store(false)
		time.Sleep(10 * time.Second)
		<-first.Lost()
		counted(2, 1)
		time.Sleep(time.Hour)
		counted(2, 1)
		for range 2 {
			require.NoError(t, first.Release(t.Context()))
			counted(2, 1)
		}
		for range 2 {
			require.NoError(t, second.Release(t.Context()))
			counted(1, 1)
		}
		require.NoError(t, other.Release(t.Context()))
		counted(0, 1)
		require.NoError(t, mustHold(t, l.InFlight(), r).Release(t.Context())) // here
		counted(0, 1)
	})
}

// A call of HoldWait counts once, however often it tries, unless it has a place, or fails, at once.
func TestCountsOfWaits(t *testing.T) {
	for name, of := range map[string]func(l *weir.Limiter) weir.Strategy{
		"here":      func(l *weir.Limiter) weir.Strategy { return l.InFlight() },
		"elsewhere": func(l *weir.Limiter) weir.Strategy { return holdElsewhere(l) },
	} {
		t.Run(name, func(t *testing.T) {
			weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
				s, before := of(l), renewal.Read()
				waits := func(want uint64) {
					t.Helper()
					require.Equal(t, want, heldSince(before).Waits)
				}
				r := &weir.Request{Key: "a", Limit: 1, Duration: time.Minute}
				h, err := weir.HoldWait(t.Context(), s, r)
				require.NoError(t, err)
				_, err = weir.HoldWait(t.Context(), s, &weir.Request{Key: "a", Limit: 1, Duration: time.Minute, Cost: 2})
				require.ErrorIs(t, err, weir.ErrLimit)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = weir.HoldWait(ended, s, r)
				require.ErrorIs(t, err, context.Canceled)
				deniesHold(t, s, r)
				waits(0)
				for i := range uint64(3) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					_, err = weir.HoldWait(ctx, s, r)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					cancel()
					waits(i + 1)
				}
				var all sync.WaitGroup
				all.Go(func() {
					h, err := weir.HoldWait(t.Context(), s, r)
					assert.NoError(t, err)
					assert.NoError(t, h.Release(t.Context()))
				})
				time.Sleep(time.Hour)
				waits(4) // while it waits
				require.NoError(t, h.Release(t.Context()))
				all.Wait()
				waits(4)
				_, err = weir.Wait(t.Context(), l.SlidingLog(), r)
				require.NoError(t, err)
				_, err = weir.Wait(t.Context(), l.SlidingLog(), r)
				require.NoError(t, err)
				waits(4) // others are not of work in flight
			})
		})
	}
	noRenewers(t)
}

// A thousand places are renewed by one goroutine and Width calls, and released while they are
// renewed.
func TestManyPlacesAreRenewedInTime(t *testing.T) {
	defer noRenewers(t)
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := holdElsewhere(l)
		s.takes = 10 * time.Millisecond
		const places = 1000
		r := &weir.Request{Key: "a", Limit: places, Duration: 15 * time.Second}
		held := make([]*weir.Held, places)
		for i := range held {
			held[i] = mustHold(t, s, r)
		}
		time.Sleep(4 * r.Duration)
		require.EqualValues(t, places, weir.Counted(t, s.InFlight, r))
		assert.EqualValues(t, 16, s.mostUnderway.Load())
		var all sync.WaitGroup
		for _, h := range held {
			all.Go(func() { assert.NoError(t, h.Release(t.Context())) })
		}
		all.Wait()
		assert.Zero(t, weir.Counted(t, s.InFlight, r))
	})
}

func TestHoldFails(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	r := &weir.Request{Key: "a", Limit: 1, Duration: time.Second}
	for name, s := range map[string]weir.Strategy{
		"SlidingLog": l.SlidingLog(),
		"Policy":     weir.KeyedFor("p", l.FixedWindow(), 1, time.Second),
	} {
		_, err := weir.Hold(t.Context(), s, r)
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
		_, err = weir.HoldWait(t.Context(), s, r)
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
	for _, bad := range []weir.Request{{Limit: 1, Duration: time.Second}, {Key: "a", Limit: 1}} {
		_, err := weir.Hold(t.Context(), l.InFlight(), &bad)
		assert.Error(t, err)
		_, err = weir.HoldWait(t.Context(), l.InFlight(), &bad)
		assert.Error(t, err)
	}
	assert.Zero(t, l.Stats().Buckets)
	for at, want := range map[time.Time]string{
		{}: "weir: denied: 3 in flight, until one is released",
		time.Unix(1,
			0).UTC(): "weir: denied: 3 in flight, until 1970-01-01 00:00:01 +0000 UTC at the latest",
		time.Unix(100,
			0).UTC(): "weir: denied: 3 in flight, until 1970-01-01 00:01:40 +0000 UTC at the latest",
	} {
		assert.EqualError(t, &weir.DeniedError{Result: weir.Result{TotalRequests: 3, ExpiresAt: at}}, want)
	}
}

// holdInTurn has n callers wait for one place, who arrive one after another, and returns the order
// in which they get it. Each holds it for so long.
func holdInTurn(t *testing.T, s weir.Strategy, n int, each time.Duration) (order []int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			h, err := weir.HoldWait(t.Context(), s, &weir.Request{Key: "a", Limit: 1, Duration: time.Minute})
			if !assert.NoError(t, err) {
				return
			}
			order = append(order, i) // only one is here
			time.Sleep(each)
			assert.NoError(t, h.Release(t.Context()))
		})
		synctest.Wait()
		time.Sleep(time.Second)
	}
	all.Wait()
	return order
}

func TestHoldWaitIsInOrder(t *testing.T) {
	const callers = 10
	want := make([]int, callers)
	for i := range want {
		want[i] = i
	}
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		begun, before := time.Now(), l.Stats().Checks
		assert.Equal(t, want, holdInTurn(t, l.InFlight(), callers, 10*time.Minute))
		assert.Equal(t, 10*callers*time.Minute, time.Since(begun), "the next has it at once")
		// One try when it arrives behind nobody, and those of the first: when its turn comes, at the end
		// of what would be a lease, and when something is released.
		assert.LessOrEqual(t, l.Stats().Checks-before, uint64(callers*2*64))
	})
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := weir.KeyedFor("p", l.InFlight(), 1, time.Minute)
		assert.Equal(t, want, holdInTurn(t, s, callers, 10*time.Minute))
	})
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		begun := time.Now()
		assert.Equal(t, want, holdInTurn(t, holdElsewhere(l), callers, 2*time.Minute))
		assert.Equal(t, 2*callers*time.Minute, time.Since(begun), "what this process releases ends a pause")
	})
	noRenewers(t)
}

// Behind a large cost smaller ones wait, though they would fit.
func TestHoldWaitDoesNotStarveLargeCosts(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.InFlight()
		r := func(cost uint64) *weir.Request {
			return &weir.Request{Key: "a", Limit: 4, Duration: time.Minute, Cost: cost}
		}
		first := mustHold(t, s, r(1))
		got := make(chan uint64, 2)
		for _, cost := range []uint64{4, 1} {
			go func() {
				h, err := weir.HoldWait(t.Context(), s, r(cost))
				assert.NoError(t, err)
				got <- cost
				time.Sleep(time.Second)
				assert.NoError(t, h.Release(t.Context()))
			}()
			synctest.Wait()
		}
		assert.Empty(t, got)
		require.NoError(t, first.Release(t.Context()))
		assert.EqualValues(t, 4, <-got)
		assert.EqualValues(t, 1, <-got)
		time.Sleep(time.Minute)
	})
}

// What is given back in another way wakes the first, too.
func TestHoldWaitWakes(t *testing.T) {
	for name, free := range map[string]func(s *weir.InFlight, r *weir.Request, taken *weir.Result,
		h *weir.Held) error{
		"Release": func(_ *weir.InFlight, _ *weir.Request, _ *weir.Result, h *weir.Held) error {
			return h.Release(t.Context())
		},
		"Refund": func(s *weir.InFlight, r *weir.Request, taken *weir.Result, _ *weir.Held) error {
			return ops.Refund(t.Context(), s, r, taken)
		},
		"Reset": func(s *weir.InFlight, r *weir.Request, _ *weir.Result, _ *weir.Held) error {
			return ops.Reset(t.Context(), s, r)
		},
		"the end of the lease": func(_ *weir.InFlight, r *weir.Request, _ *weir.Result, _ *weir.Held) error {
			time.Sleep(r.Duration - time.Second) // in a bubble
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
				s := l.InFlight()
				r := &weir.Request{Key: "a", Limit: 2, Duration: time.Hour}
				h := mustHold(t, s, r)
				taken := weir.MustRun(t, s, r)
				begun := time.Now()
				var waited time.Duration
				var all sync.WaitGroup
				all.Go(func() {
					held, err := weir.HoldWait(t.Context(), l.InFlight(), r) // another, on the same Limiter
					assert.NoError(t, err)
					waited = time.Since(begun)
					assert.NoError(t, held.Release(t.Context()))
				})
				time.Sleep(time.Second)
				synctest.Wait()
				require.NoError(t, free(s, r, taken, h))
				now := time.Since(begun)
				all.Wait()
				assert.Equal(t, now, waited)
			})
		})
	}
}

func TestHoldWaitFailsWithItsContext(t *testing.T) {
	for name, made := range map[string]func(l *weir.Limiter) weir.Strategy{
		"in process": func(l *weir.Limiter) weir.Strategy { return l.InFlight() },
		"elsewhere":  func(l *weir.Limiter) weir.Strategy { return holdElsewhere(l) },
	} {
		t.Run(name, func(t *testing.T) {
			weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
				s := made(l)
				r := &weir.Request{Key: "a", Limit: 1, Duration: time.Hour}
				h := mustHold(t, s, r)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := weir.HoldWait(ctx, s, r)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.InDelta(t, time.Minute, time.Since(start), float64(10*time.Millisecond))

				<-ctx.Done() // with no time for another try, HoldWait returns before
				start = time.Now()
				_, err = weir.HoldWait(ctx, s, r)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Zero(t, time.Since(start), "at once")

				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err = weir.HoldWait(ctx, s, r)
				assert.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, time.Second, time.Since(start))
				require.NoError(t, h.Release(t.Context()))
				assert.EqualValues(t, 0, must(ops.Peek(t.Context(), s, r)).TotalRequests-1)
			})
		})
	}
	noRenewers(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Elsewhere a try follows after a pause that doubles, up to a bound, and one more just before the
// deadline.
func TestHoldWaitTriesElsewhere(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := holdElsewhere(l)
		r := &weir.Request{Key: "a", Limit: 1, Duration: time.Hour}
		h := mustHold(t, s, r)
		defer func() { require.NoError(t, h.Release(t.Context())) }()
		for _, c := range []struct {
			within      time.Duration
			least, most int64
		}{
			{4 * time.Millisecond, 1, 1}, // no time for another try
			{100 * time.Millisecond, 4, 7},
			{time.Minute, 240, 500},
		} {
			s.tries.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			start := time.Now()
			_, err := weir.HoldWait(ctx, s, r)
			cancel()
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			if c.most == 1 {
				assert.Zero(t, time.Since(start), "at once")
			}
			n := s.tries.Load()
			assert.True(t, c.least <= n && n <= c.most, "%v: %d tries", c.within, n)
		}
		// The last try is in the last 2*MinTry, mostly MinTry before the deadline.
		lasts := time.Now().Add(30*time.Second - 2*weir.MinTry - time.Millisecond)
		// by another process
		time.AfterFunc(time.Until(lasts), func() { assert.NoError(t, ops.Reset(t.Context(), s, r)) })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		held, err := weir.HoldWait(ctx, s, r)
		require.NoError(t, err, "the last try")
		require.NoError(t, held.Release(t.Context()))
	})
}

// Many who wait, give up and release, on limits in this process and elsewhere.
func TestHoldWaitConcurrently(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		for _, s := range []weir.Strategy{l.InFlight(), holdElsewhere(l)} {
			var all sync.WaitGroup
			var inside [4]atomic.Int64
			for i := range 1000 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%100+1)*time.Second)
					defer cancel()
					h, err := weir.HoldWait(ctx, s, &weir.Request{Key: fmt.Sprint(i % 4), Limit: 3, Duration: time.Minute})
					if err != nil {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						return
					}
					assert.LessOrEqual(t, inside[i%4].Add(1), int64(3))
					time.Sleep(time.Duration(i%7) * 300 * time.Millisecond)
					inside[i%4].Add(-1)
					assert.NoError(t, h.Release(t.Context()))
				})
			}
			all.Wait()
			for i := range 4 {
				res := weir.MustPeek(t, s, &weir.Request{Key: strconv.Itoa(i), Limit: 3, Duration: time.Minute})
				assert.EqualValues(t, 1, res.TotalRequests, "nothing is held")
			}
		}
	})
	noRenewers(t)
}

// Nobody knows when a place of this process is released: no denial names an instant, however long
// the place is held. Where enough leases end, that is known.
func TestADenialOfWorkInFlightNamesNoInstantThatNobodyKnows(t *testing.T) {
	const unknown = time.Duration(math.MaxInt64)
	for name, c := range map[string]struct {
		places, leases int // of 4, a lease each minute
		cost           uint64
		want           time.Duration // unknown: no instant
		never          bool
	}{
		"all places are held":                {places: 4, want: unknown},
		"the last lease ends":                {places: 3, leases: 1, want: time.Minute},
		"a lease ends, and one is held":      {places: 3, leases: 1, cost: 2, want: unknown},
		"leases only":                        {leases: 4, want: time.Minute},
		"a cost over the limit":              {cost: 5, want: unknown, never: true},
		"a cost over the limit, and a place": {places: 1, cost: 5, want: unknown, never: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := weir.Manual(t)
			m := l.InFlight().Limit(4)
			for range c.places {
				_, err := m.Hold(t.Context(), "k")
				require.NoError(t, err)
			}
			// takes them at the instant that is now
			lease := func() {
				for range c.leases {
					weir.MustRun(t, weir.CounterOf(m), &weir.Request{Key: "k"})
				}
			}
			for _, later := range []time.Duration{0, time.Hour, 365 * 24 * time.Hour} {
				*now = now.Add(later)
				lease()
				r := &weir.Request{Key: "k", Cost: c.cost}
				var denied *weir.DeniedError
				_, err := weir.Hold(t.Context(), m, r)
				require.ErrorAs(t, err, &denied)
				res, _, err := ops.Acquire(t.Context(), weir.CounterOf(m), r)
				require.NoError(t, err)
				peek := weir.MustPeek(t, m, r)
				for _, got := range []*weir.Result{&denied.Result, res, peek} {
					assert.Equal(t, c.want, got.RetryAfter(*now))
					assert.Equal(t, c.want == unknown, got.ExpiresAt.IsZero())
				}
				assert.Equal(t, c.never, errors.Is(denied, weir.ErrLimit))
				switch {
				case c.never:
					assert.ErrorContains(t, denied, "the cost can never pass")
				case c.want == unknown:
					assert.ErrorContains(t, denied, "in flight, until one is released")
				default:
					assert.ErrorContains(t, denied, "at the latest")
				}
				if c.cost == 0 {
					out, err := m.Peek(t.Context(), "k")
					require.NoError(t, err)
					assert.Equal(t, c.want, out.Wait)
				}
				if c.leases > 0 { // they end
					*now = now.Add(time.Minute)
				}
			}
		})
	}
}

// The leases of a snapshot end at an instant.
func TestLoadedPlacesEnd(t *testing.T) {
	l, now := weir.Manual(t)
	_, err := l.InFlight().Limit(1).Hold(t.Context(), "k")
	require.NoError(t, err)
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other, at := weir.Manual(t)
	require.NoError(t, other.Load(&saved))
	*at = now.Add(20 * time.Second)
	_, err = other.InFlight().Limit(1).Hold(t.Context(), "k")
	var denied *weir.DeniedError
	require.ErrorAs(t, err, &denied)
	assert.Equal(t, 40*time.Second, denied.Result.RetryAfter(*at))
}

// Who waits for a place waits until its release, and for no instant before.
func TestHoldWaitWaitsForTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.MustNew(t, weir.Config{})
		m := l.InFlight().Limit(1)
		first, err := m.Hold(t.Context(), "k")
		require.NoError(t, err)
		time.AfterFunc(5*time.Hour, func() { assert.NoError(t, first.Release(t.Context())) })
		start := time.Now()
		second, err := m.HoldWait(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 5*time.Hour, time.Since(start))
		require.NoError(t, second.Release(t.Context()))
		_, err = weir.HoldWait(t.Context(), m, &weir.Request{Key: "k", Cost: 2})
		require.ErrorIs(t, err, weir.ErrLimit)
		require.NoError(t, l.Close())
	})
}
