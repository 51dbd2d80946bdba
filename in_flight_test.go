package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
)

func mustHold(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Held {
	t.Helper()
	h, err := weir.Hold(t.Context(), s, r)
	require.NoError(t, err)
	return h
}

func deniesHold(t testing.TB, s weir.Strategy, r *weir.Request) *weir.DeniedError {
	t.Helper()
	h, err := weir.Hold(t.Context(), s, r)
	require.Nil(t, h)
	denied := (*weir.DeniedError)(nil)
	require.ErrorAs(t, err, &denied)
	require.False(t, denied.Result.Allowed())
	return denied
}

func TestAPlaceIsHeldUntilItsRelease(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: 1})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 3, Duration: time.Second, Cost: 2}
	one := &weir.Request{Key: "a", Limit: 3, Duration: time.Second}
	h := mustHold(t, s, r)
	for range 5 {
		clock.Advance(time.Duration(int64(time.Hour)))
		l.Sweep()
		require.EqualValues(t, 2, weir.Counted(t, s, one))
	}
	denied := deniesHold(t, s, r)
	assert.EqualValues(t, 2, denied.Result.TotalRequests)
	assert.True(t, denied.Result.ExpiresAt.IsZero(), "nobody knows when it is released")
	assert.Nil(t, h.Lost(), "it is never lost in this process")

	_, err := s.Run(t.Context(), one) // a lease beside it
	require.NoError(t, err)
	clock.Advance(time.Duration(int64(300 * time.Millisecond)))
	assert.Equal(t, clock.Now().Add(700*time.Millisecond), deniesHold(t, s, one).Result.ExpiresAt,
		"the lease's end")
	clock.Advance(time.Duration(int64(700 * time.Millisecond)))
	second := mustHold(t, s, one)

	for range 3 {
		require.NoError(t, h.Release(t.Context()))
		assert.EqualValues(t, 1, weir.Counted(t, s, one), "the first release counts")
	}
	require.NoError(t, second.Release(t.Context()))
	assert.Zero(t, weir.Counted(t, s, r))
	clock.Advance(time.Duration(int64(time.Hour)))
	l.Sweep()
	assert.Zero(t, l.Stats().Buckets, "nothing is kept")
}

func TestCostsThatCanNeverPassAreNotHeld(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	for _, r := range []weir.Request{{Limit: 3, Cost: 4}, {Limit: 0}, {Limit: 1 << 63, Cost: 1<<63 + 1}} {
		r.Key, r.Duration = "a", time.Second
		denied := deniesHold(t, s, &r)
		assert.ErrorIs(t, denied, weir.ErrLimit)
		assert.True(t, denied.Result.ExpiresAt.IsZero())
		_, err := weir.HoldWait(t.Context(), s, &r)
		assert.ErrorIs(t, err, weir.ErrLimit)
	}
	r := &weir.Request{Key: "a", Limit: 3, Duration: time.Second, Cost: 3}
	mustHold(t, s, r)
	assert.NotErrorIs(t, deniesHold(t, s, r), weir.ErrLimit)
	assert.EqualValues(t, 1, l.Stats().Buckets)
}

// Reset takes the leases back. The work that is in flight goes on, and counts.
func TestResetKeepsWhatIsHeld(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Second, Cost: 2}
	for name, reset := range map[string]func(ctx context.Context) error{
		"Reset": func(ctx context.Context) error { return ops.Reset(ctx, s, r) },
		"ResetPrefix": func(ctx context.Context) error {
			_, err := ops.ResetPrefix(ctx, s, "", nil)
			return err
		},
	} {
		h := mustHold(t, s, r)
		weir.MustRun(t, s, r)
		require.EqualValues(t, 4, weir.Counted(t, s, r), name)
		require.NoError(t, reset(t.Context()))
		require.EqualValues(t, 2, weir.Counted(t, s, r), name)
		require.NoError(t, h.Release(t.Context()))
		require.Zero(t, weir.Counted(t, s, r), name)
	}
	require.NoError(t, ops.Reset(t.Context(), s, &weir.Request{Key: "unknown", Limit: 1, Duration: time.Second}))
}

// The next process does not know whether the work goes on: its places end one Duration later.
func TestHeldPlacesAreLeasesInASnapshot(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
	mustHold(t, s, r)
	weir.MustRun(t, s, r)
	clock.Advance(time.Duration(int64(40 * time.Second)))
	snapshot := saved(t, l)

	next, again := newLimiter(t, weir.Config{})
	again.Set(time.Unix(0, clock.Now().UnixNano()).UTC())
	for range 2 {
		require.NoError(t, next.Load(bytes.NewReader(snapshot)))
		require.EqualValues(t, 4, weir.Counted(t, next.InFlight(), r))
	}
	require.NoError(t, l.Load(bytes.NewReader(snapshot)), "its own")
	require.EqualValues(t, 4, weir.Counted(t, s, r))
	again.Advance(time.Duration(int64(20 * time.Second)))
	assert.EqualValues(t, 2, weir.Counted(t, next.InFlight(), r), "the lease has ended")
	again.Advance(time.Duration(int64(40*time.Second) - 1))
	assert.EqualValues(t, 2, weir.Counted(t, next.InFlight(), r))
	again.Advance(time.Duration(1))
	assert.Zero(t, weir.Counted(t, next.InFlight(), r), "a Duration after the snapshot")
}

func TestReleaseAfterClose(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	h := mustHold(t, s, r)
	require.NoError(t, l.Close())
	_, err := weir.Hold(t.Context(), s, r)
	assert.ErrorIs(t, err, weir.ErrClosed)
	assert.NoError(t, h.Release(t.Context()))
}

// flights are the operations on work in flight that the model follows: of an InFlight, or of a
// control.
type flights interface {
	hold(r *weir.Request) (release func(), res weir.Result)
	lease(r *weir.Request) (giveBack func(context.Context, uint64) error, res weir.Result)
}

type flightsOf struct {
	t testing.TB
	s *weir.InFlight
}

func (f flightsOf) hold(r *weir.Request) (func(), weir.Result) {
	res, place, err := ops.Acquire(f.t.Context(), f.s, r)
	require.NoError(f.t, err)
	if !res.Allowed() {
		return nil, *res
	}
	return func() { require.NoError(f.t, place.Release(f.t.Context())) }, *res
}

func (f flightsOf) lease(r *weir.Request) (func(context.Context, uint64) error, weir.Result) {
	res, giveBack, err := ops.Admit(f.t.Context(), f.s, r)
	require.NoError(f.t, err)
	return giveBack, *res
}

// generous is a control: what is given back late is given back all the same.
type generous struct{ flightsOf }

func (f generous) lease(r *weir.Request) (func(context.Context, uint64) error, weir.Result) {
	giveBack, res := f.flightsOf.lease(r)
	return func(ctx context.Context, cost uint64) error {
		if err := giveBack(ctx, cost); err != nil {
			return err
		}
		counted, err := ops.Peek(ctx, f.s, r) // another's place, if its own has ended
		require.NoError(f.t, err)
		if !counted.Allowed() {
			return ops.Refund(ctx, f.s, r, &weir.Result{State: weir.Allow, ExpiresAt: counted.ExpiresAt})
		}
		return nil
	}, res
}

// modelled is work in flight in the model.
type modelled struct {
	cost   uint64
	end    time.Time // of a lease; the zero time: it is held
	finish func()
}

// differsFromModel makes random holds, leases, late releases, crashes (leases that nobody gives
// back) and steps of the clock, and returns how the Results differ from the model's: work counts
// from its admission to its release, or to the end of its lease.
func differsFromModel(
	t testing.TB, of func(*weir.InFlight) flights, seed uint64, steps int,
) (how string) {
	l, clock := newLimiter(t, weir.Config{Timeout: time.Minute, MaxBuckets: 1000})
	defer l.Close()
	s := l.InFlight()
	f, rnd := of(s), rand.New(rand.NewPCG(seed, 3))
	const limit, lease = 10, 10 * time.Second
	var live []modelled
	var late []func() // of leases that have ended
	now := clock.Now()
	for step := range steps {
		clock.Set(time.Unix(0, now.UnixNano()+rnd.Int64N(2)*rnd.Int64N(int64(3*time.Second))).UTC())
		if rnd.IntN(20) == 0 {
			l.Sweep()
		}
		now = clock.Now()
		// the caller is seen now
		f.lease(&weir.Request{Key: "a", Limit: limit, Duration: lease, Cost: limit + 1})
		live = slices.DeleteFunc(live, func(w modelled) bool {
			over := !w.end.IsZero() && !now.Before(w.end)
			if over && w.finish != nil {
				late = append(late, w.finish)
			}
			return over
		})
		leased := slices.ContainsFunc(live, func(w modelled) bool { return !w.end.IsZero() })
		if leased && rnd.IntN(10) == 0 { // the clock steps back, which changes nothing
			clock.Advance(time.Duration(-rnd.Int64N(int64(20 * time.Second))))
		}
		var used uint64
		for _, w := range live {
			used += w.cost
		}
		if used > limit {
			return fmt.Sprintf("step %d: %d are alive", step, used)
		}
		r := &weir.Request{Key: "a", Limit: limit, Duration: lease, Cost: 1 + rnd.Uint64N(4)}
		var res weir.Result
		w := modelled{cost: r.Cost, end: now.Add(lease)}
		switch op := rnd.IntN(10); {
		case op < 3:
			w.finish, res = f.hold(r)
			w.end = time.Time{}
		case op < 6:
			var giveBack func(context.Context, uint64) error
			giveBack, res = f.lease(r)
			w.finish = func() { require.NoError(t, giveBack(t.Context(), r.Cost)) }
		case op < 7: // it crashes
			_, res = f.lease(r)
		case op < 9 && len(live) > 0:
			if i := rnd.IntN(len(live)); live[i].finish != nil {
				live[i].finish()
				live = slices.Delete(live, i, i+1)
			}
			continue
		case len(late) > 0:
			late[0]()
			late = late[1:]
			continue
		default:
			continue
		}
		fits := used+r.Cost <= limit
		if fits {
			live = append(live, w)
			used += r.Cost
		}
		if res.Allowed() != fits || res.TotalRequests != used {
			return fmt.Sprintf("step %d: %v %d, want %v %d", step, res.State, res.TotalRequests, fits, used)
		}
	}
	for _, w := range live {
		if w.finish != nil {
			w.finish()
		}
	}
	clock.Set(time.Unix(0, now.UnixNano()+int64(lease)).UTC())
	if n := weir.Counted(t, s, &weir.Request{Key: "a", Limit: limit, Duration: lease}); n != 0 {
		return fmt.Sprintf("at the end %d are in flight", n)
	}
	return ""
}

// Never more than Limit are alive, and nothing is held after all has ended.
func TestInFlightFollowsItsModel(t *testing.T) {
	plain := func(s *weir.InFlight) flights { return flightsOf{t, s} }
	for seed := range uint64(slow.N(20, 200, 5000)) {
		require.Empty(t, differsFromModel(t, plain, seed, 1000), "seed %d", seed)
	}
	assert.NotEmpty(t, differsFromModel(t, func(s *weir.InFlight) flights {
		return generous{flightsOf{t, s}}
	}, 1, 5000),
		"a late release must not give back what others hold")
}

// streams runs n streams of random length by 64 goroutines, of 20 callers with 4 places each, and
// returns the most that one caller had in flight, and how many were admitted.
func streams(
	t testing.TB, n int, hold func(r *weir.Request) (release func(), err error),
) (most, admitted int64) {
	const callers, limit = 20, 4
	var inside [callers]atomic.Int64
	var peak, ran atomic.Int64
	var all errgroup.Group
	var next atomic.Int64
	for range 64 {
		all.Go(func() error {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				caller := rand.IntN(callers)
				cost := int64(1 + rand.IntN(2))
				release, err := hold(&weir.Request{
					Key: strconv.Itoa(caller), Limit: limit, Duration: time.Minute, Cost: uint64(cost),
				})
				if err != nil {
					return err
				}
				if release == nil {
					continue
				}
				weir.StoreMax(&peak, inside[caller].Add(cost))
				ran.Add(1)
				for range rand.IntN(50) {
					runtime.Gosched()
				}
				inside[caller].Add(-cost)
				release()
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	return peak.Load(), ran.Load()
}

// releaseOf returns what releases h, unless it was denied.
func releaseOf(t testing.TB, h *weir.Held, err error) (func(), error) {
	if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func() { assert.NoError(t, h.Release(t.Context())) }, nil
}

func TestNeverMoreThanTheLimitInFlight(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	s := l.InFlight()
	nothing := func() {
		t.Helper()
		for i := range 20 {
			require.Zero(t, weir.Counted(t, s, &weir.Request{Key: strconv.Itoa(i), Limit: 4, Duration: time.Minute}))
		}
	}
	const n = 10_000
	most, admitted := streams(t, n, func(r *weir.Request) (func(), error) {
		h, err := weir.Hold(t.Context(), s, r)
		return releaseOf(t, h, err)
	})
	assert.EqualValues(t, 4, most)
	assert.Less(t, admitted, int64(n), "some were denied")
	assert.EqualValues(t, n, l.Stats().Allowed+l.Stats().Denied)
	assert.EqualValues(t, admitted, l.Stats().Allowed)
	nothing()
	most, admitted = streams(t, n, func(r *weir.Request) (func(), error) {
		h, err := weir.HoldWait(t.Context(), s, r)
		return releaseOf(t, h, err)
	})
	assert.EqualValues(t, 4, most)
	assert.EqualValues(t, n, admitted, "all of them, in turn")
	nothing()
	assert.Zero(t, turns.Queues())
}

// The control reads, and counts later.
func TestInFlightControlIsRejected(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	s := l.InFlight()
	for range 50 {
		most, _ := streams(t, 10_000, func(r *weir.Request) (func(), error) {
			res, err := ops.Peek(t.Context(), s, r)
			if err != nil || !res.Allowed() {
				return nil, err
			}
			runtime.Gosched()
			unbounded := *r
			unbounded.Limit = 1 << 40
			h, err := weir.Hold(t.Context(), s, &unbounded)
			return releaseOf(t, h, err)
		})
		if most > 4 {
			return
		}
	}
	t.Error("more than the limit must be in flight at some time")
}

// Held is the cost of the places, of all callers: beside leases, for which nobody holds anything,
// and while somebody waits too.
func TestStatsCountWhatIsHeld(t *testing.T) {
	weir.Waiting(t, func(t *testing.T, l *weir.Limiter) {
		s := l.InFlight()
		held := func(want int) {
			t.Helper()
			require.EqualValues(t, want, l.Stats().Held)
		}
		r := func(key string, cost uint64) *weir.Request {
			return &weir.Request{Key: key, Limit: 5, Duration: time.Minute, Cost: cost}
		}
		held(0)
		a, b := mustHold(t, s, r("a", 0)), mustHold(t, s, r("a", 3))
		held(4)
		long := mustHold(t, weir.KeyedFor("p", l.InFlight(), 5, time.Hour),
			&weir.Request{Key: strings.Repeat("b", 100), Cost: 2})
		held(6)
		deniesHold(t, s, r("a", 2))
		held(6)
		weir.MustRun(t, s, r("a", 1))
		held(6)
		var all sync.WaitGroup
		all.Go(func() {
			h, err := weir.HoldWait(t.Context(), s, r("a", 5))
			assert.NoError(t, err)
			held(7)
			assert.NoError(t, h.Release(t.Context()))
		})
		synctest.Wait()
		held(6)
		for range 2 { // the second time it does nothing
			require.NoError(t, a.Release(t.Context()))
			held(5)
		}
		require.NoError(t, b.Release(t.Context()))
		held(2)
		all.Wait() // until the lease has ended
		held(2)
		l.Sweep()
		held(2)
		require.NoError(t, long.Release(t.Context()))
		held(0)
		time.Sleep(time.Hour)
		l.Sweep()
		held(0)
		assert.Zero(t, l.Stats().Buckets)
	})
}

// While 64 goroutines hold and release, Held is never more than they may hold, and in the end what
// is held.
func TestStatsCountWhatIsHeldConcurrently(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	s, done, kept := l.InFlight(), make(chan struct{}), make([]*weir.Held, 64)
	var all sync.WaitGroup
	for i := range kept {
		all.Go(func() {
			r := &weir.Request{Key: strconv.Itoa(i % 8), Limit: 8 * 3, Duration: time.Minute, Cost: 3}
			for range 1000 {
				h, err := weir.Hold(t.Context(), s, r)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, h.Release(t.Context()))
			}
			h, err := weir.Hold(t.Context(), s, r)
			assert.NoError(t, err)
			kept[i] = h
		})
	}
	go func() { defer close(done); all.Wait() }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		assert.LessOrEqual(t, l.Stats().Held, uint64(64*3))
	}
	assert.EqualValues(t, 64*3, l.Stats().Held)
	assert.EqualValues(t, 64*1001, l.Stats().Allowed, "the control, which takes no release off")
	for i, h := range kept {
		require.NoError(t, h.Release(t.Context()))
		require.EqualValues(t, 3*(63-i), l.Stats().Held)
	}
}

// A place takes at most 100 bytes beside the bucket of its caller, and no goroutine.
func TestHeldPlacesAreSmall(t *testing.T) {
	places := slow.N(20_000, 100_000, 100_000)
	for _, callers := range []int{1, 1000, places / 2} {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		s := l.InFlight()
		keys := numbers(callers)
		hold := func(i int) *weir.Held {
			return mustHold(t, s, &weir.Request{Key: keys[i%callers], Limit: 1 << 30, Duration: time.Minute})
		}
		held := make([]*weir.Held, 0, places+callers)
		for i := range callers {
			held = append(held, hold(i)) // the caller's bucket
		}
		before, goroutines := weir.LiveHeap(), runtime.NumGoroutine()
		for i := range places {
			held = append(held, hold(i))
		}
		each := float64(weir.LiveHeap()-before) / float64(places)
		t.Logf("%d callers: %.1f bytes for each place", callers, each)
		assert.Less(t, each, 100.0)
		assert.Equal(t, goroutines, runtime.NumGoroutine())
		for _, h := range held {
			require.NoError(t, h.Release(t.Context()))
		}
		require.NoError(t, l.Close())
	}
}

// A caller of whom only places are held has a slot and no flight; one with leases, or for whom
// somebody waits, has both, which are one bucket.
func TestOnlyLeasesAndWaitersTakeAFlight(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 3, Duration: time.Second}
	has := func(slots, flights int) {
		t.Helper()
		assert.Equal(t, flights, weir.Flights(l), "flights")
		assert.Equal(t, slots, l.Stats().Buckets, "buckets")
	}
	has(0, 0)
	h := mustHold(t, s, r)
	has(1, 0)
	taken, giveBack, err := ops.Admit(t.Context(), s, r)
	require.NoError(t, err)
	require.EqualValues(t, 2, taken.TotalRequests)
	has(1, 1)
	second := mustHold(t, s, r)
	has(1, 1)
	deniesHold(t, s, r)
	require.NoError(t, giveBack(t.Context(), 1))
	has(1, 0)
	third := mustHold(t, s, r)
	assert.EqualValues(t, 3, deniesHold(t, s, r).Result.TotalRequests)

	freed, err := weir.Freed(s, r)
	require.NoError(t, err)
	has(1, 1)
	l.Sweep()
	has(1, 1)
	select {
	case <-freed:
		t.Error("nothing was given back")
	default:
	}
	require.NoError(t, third.Release(t.Context()))
	<-freed
	has(1, 0)

	_, err = s.Run(t.Context(), r) // its lease ends, and the next hold finds that
	require.NoError(t, err)
	clock.Advance(time.Duration(int64(time.Second)))
	third = mustHold(t, s, r)
	has(1, 0)
	for _, h := range []*weir.Held{h, second, third} {
		require.NoError(t, h.Release(t.Context()))
	}
	has(1, 0)
	l.Sweep()
	has(0, 0)
	freed, err = weir.Freed(s, r)
	require.NoError(t, err)
	assert.Nil(t, freed, "nothing counts")
}

// At a full table what was released is removed at once, and what is held never: also after a sweep
// found it held, and where leases ended beside it.
func TestReleasedPlacesMakeRoom(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{MaxBuckets: 2})
	s := l.InFlight()
	r := func(key string) *weir.Request { return &weir.Request{Key: key, Limit: 2, Duration: time.Second} }
	a, b := mustHold(t, s, r("a")), mustHold(t, s, r("b"))
	for _, next := range []string{"1", "2", "3"} {
		l.Sweep()
		_, err := weir.Hold(t.Context(), s, r(next))
		require.ErrorIs(t, err, weir.ErrFull)
		require.NoError(t, a.Release(t.Context()))
		a = mustHold(t, s, r(next))
		require.EqualValues(t, 2, l.Stats().Buckets)
	}
	require.NoError(t, a.Release(t.Context()))
	weir.MustRun(t, s, r("d"))
	weir.MustRun(t, s, r("b"))
	_, err := weir.Hold(t.Context(), s, r("e"))
	require.ErrorIs(t, err, weir.ErrFull)
	clock.Advance(time.Duration(int64(time.Second)))
	mustHold(t, s, r("e"))
	_, err = weir.Hold(t.Context(), s, r("f"))
	require.ErrorIs(t, err, weir.ErrFull)
	assert.EqualValues(t, 1, weir.Counted(t, s, r("b")))
	require.NoError(t, b.Release(t.Context()))
	assert.Zero(t, weir.Counted(t, s, r("b")))
}

// The admissions of a slot are tallied in it, up to a number.
func TestHoldsAreCountedExactly(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	want := uint64(0)
	for _, cost := range []uint64{1, 2, weir.MaxHeld / 200} {
		r := &weir.Request{Key: strconv.FormatUint(cost, 10), Limit: weir.MaxHeld, Duration: time.Second,
			Cost: cost}
		var held []*weir.Held
		for range 200 {
			held = append(held, mustHold(t, s, r))
			want++
			require.EqualValues(t, want, l.Stats().Allowed)
			require.EqualValues(t, cost*uint64(len(held)), weir.Counted(t, s, r))
		}
		for _, h := range held {
			require.NoError(t, h.Release(t.Context()))
		}
		require.Zero(t, weir.Counted(t, s, r))
	}
	l.Sweep()
	require.Zero(t, l.Stats().Buckets)
	assert.EqualValues(t, want, l.Stats().Allowed)
}

// Costs beyond 2^40-2 count as that.
func TestHoldTakesVeryLargeCosts(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: math.MaxUint64, Duration: time.Second, Cost: math.MaxUint64}
	for range 3 {
		h := mustHold(t, s, r)
		assert.EqualValues(t, uint64(weir.MaxHeld), deniesHold(t, s, r).Result.TotalRequests)
		r.Cost = 1
		deniesHold(t, s, r)
		require.NoError(t, h.Release(t.Context()))
		h = mustHold(t, s, r)
		r.Cost = 1<<40 - 2
		deniesHold(t, s, r)
		require.NoError(t, h.Release(t.Context()))
		require.Zero(t, weir.Counted(t, s, r))
	}
}

// A Held that does not escape takes no allocation, and another one takes one.
func TestHoldAllocatesAtMostItsPlace(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s := l.InFlight()
	r := &weir.Request{Key: "a", Limit: 3, Duration: time.Second}
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		h, err := weir.Hold(ctx, s, r)
		if err == nil {
			err = h.Release(ctx)
		}
		if err != nil {
			panic(err)
		}
	}), "it is inlined into its caller")
	assert.EqualValues(t, 1, testing.AllocsPerRun(100, func() {
		escapes = must(weir.Hold(ctx, s, r))
		must(0, escapes.Release(ctx))
	}))
}

var escapes *weir.Held

// Nobody could release a hit of a limit on work in flight: each verb that takes one fails, in each
// way to make the limit, counts nothing, and opens nothing.
func TestEachVerbOfALimitInFlight(t *testing.T) {
	l, _ := doortest.NewLimiter(t)
	rate := l.SlidingWindow().Limit(5, time.Minute)
	verbs := map[string]func(ctx context.Context, m *weir.Limit) error{
		"Take": func(ctx context.Context, m *weir.Limit) error { _, err := m.Take(ctx, "k", 1); return err },
		"Run": func(ctx context.Context, m *weir.Limit) error {
			_, err := m.Run(ctx, &weir.Request{Key: "k"})
			return err
		},
		"Wait": func(ctx context.Context, m *weir.Limit) error { return m.Wait(ctx, "k") },
		"the function Wait": func(ctx context.Context, m *weir.Limit) error {
			_, err := weir.Wait(ctx, m, &weir.Request{Key: "k"})
			return err
		},
		"Reserve": func(ctx context.Context, m *weir.Limit) error {
			_, err := m.Reserve(ctx, "k", 1)
			return err
		},
		"Reserve of limits": func(ctx context.Context, m *weir.Limit) error {
			_, err := limits.Reserve(ctx, rate.For("k"), m.For("k"))
			return err
		},
		"Decide": func(ctx context.Context, m *weir.Limit) error {
			_, err := limits.Decide(ctx, rate.For("k"), m.For("k"))
			return err
		},
		"Take of a limits.All": func(ctx context.Context, m *weir.Limit) error {
			_, err := limits.All(rate, m).Take(ctx, "k", 1)
			return err
		},
	}
	for way, s := range doortest.InFlight(t, l, l.InFlight()) {
		m, ok := s.(*weir.Limit)
		if !ok {
			continue
		}
		for verb, call := range verbs {
			before := l.Stats()
			err := call(t.Context(), m)
			require.ErrorIs(t, err, errors.ErrUnsupported, "%s of %s", verb, way)
			assert.ErrorContains(t, err, "Hold", "%s of %s", verb, way)
			assert.Equal(t, before.Invalid+1, l.Stats().Invalid, "%s of %s", verb, way)
			assert.Equal(t, before.Allowed, l.Stats().Allowed, "%s of %s", verb, way)
		}
		before := l.Stats()
		assert.False(t, m.Allow("k"), way)
		assert.False(t, m.AllowBytes([]byte("k")), way)
		assert.False(t, m.FailOpen().Allow("k"), way)
		assert.False(t, m.FailOpen().AllowBytes([]byte("k")), way)
		assert.Equal(t, before.Invalid+4, l.Stats().Invalid, way)
		assert.Equal(t, before.Allowed, l.Stats().Allowed, way)
	}
	assert.True(t, l.SlidingWindow().Limit(5, time.Minute).Allow("k"), "the control")
}

// So does what waits or decides by such a Strategy itself. Its own Run is for who gives back.
func TestStrategiesOfWorkInFlight(t *testing.T) {
	l, _ := doortest.NewLimiter(t)
	for way, s := range doortest.InFlight(t, l, l.InFlight()) {
		if _, ok := s.(*weir.Limit); ok {
			continue
		}
		r := &weir.Request{Key: "k", Limit: 1, Duration: time.Minute}
		_, err := weir.Wait(t.Context(), s, r)
		require.ErrorIs(t, err, errors.ErrUnsupported, way)
		_, err = limits.Decide(t.Context(), weir.Ask{Strategy: s, Request: *r})
		require.ErrorIs(t, err, errors.ErrUnsupported, way)
		assert.ErrorContains(t, err, "Hold", way)
		_, err = limits.Reserve(t.Context(), weir.Ask{Strategy: s, Request: *r})
		require.ErrorIs(t, err, errors.ErrUnsupported, way)
	}
	res, err := l.InFlight().Run(t.Context(), &weir.Request{Key: "k", Limit: 1, Duration: time.Minute})
	require.NoError(t, err)
	assert.True(t, res.Allowed())
}
