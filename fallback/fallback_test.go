package fallback_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

func twice(limit uint64) uint64 {
	if limit > 1<<62 {
		return limit
	}
	return 2 * limit
}

// With one instance, a Fallback keeps the laws of the strategies it combines, whichever of them
// decides, and so do its combinations with package near.
func TestConformance(t *testing.T) {
	fixed := func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }
	log := func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }
	plain := func(s weir.Strategy, _ *weirtest.Clock) weir.Strategy { return s }
	down := func(weir.Strategy, *weirtest.Clock) weir.Strategy { return weirtest.FailAll(errDown) }
	lease := func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewLeases(s, near.LeaseConfig{Block: 8, Skew: -1, Now: c.Now})
	}
	denials := func(s weir.Strategy, c *weirtest.Clock) weir.Strategy {
		return near.NewDenials(s, near.DenialsConfig{Size: 64, Skew: -1, Now: c.Now})
	}
	both := func(s weir.Strategy, c *weirtest.Clock) weir.Strategy { return lease(denials(s, c), c) }
	windows := weirtest.Laws{Span: twice, Aligned: true}
	cached := windows
	cached.Skip = map[string]string{"ClockBack": "a denial is good by the clock"}
	for name, row := range map[string]struct {
		of            strategyOf
		inner, around func(weir.Strategy, *weirtest.Clock) weir.Strategy
		laws          weirtest.Laws
	}{
		"FixedWindow/healthy":   {fixed, plain, plain, windows},
		"FixedWindow/down":      {fixed, down, plain, windows},
		"SlidingLog/healthy":    {log, plain, plain, weirtest.Laws{}},
		"SlidingLog/down":       {log, down, plain, weirtest.Laws{}},
		"Lease inside":          {fixed, lease, plain, windows},
		"Denials inside":        {fixed, denials, plain, cached},
		"both inside":           {fixed, both, plain, cached},
		"Lease around":          {fixed, plain, lease, windows},
		"Lease around/down":     {fixed, down, lease, windows},
		"Denials around":        {fixed, plain, denials, cached},
		"Denials around/down":   {fixed, down, denials, cached},
		"both around, and down": {fixed, down, both, cached},
	} {
		t.Run(name, func(t *testing.T) {
			row.laws.Histories = slow.N(2, 10, 100)
			t.Parallel()
			weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
				primary := row.inner(row.of(limiterOn(t, clock.Now)), clock)
				f := newFallback(t, primary, row.of(limiterOn(t, clock.Now)),
					fallback.Config{Now: clock.Now, Timeout: time.Minute})
				s := row.around(f, clock)
				return s
			}, row.laws)
		})
	}
}

func TestConfig(t *testing.T) {
	ok := weirtest.DenyAll()
	for name, row := range map[string]struct {
		primary, local weir.Strategy
		cfg            fallback.Config
	}{
		"no primary":     {nil, ok, fallback.Config{}},
		"no local":       {ok, nil, fallback.Config{}},
		"Instances":      {ok, ok, fallback.Config{Instances: -1}},
		"Timeout":        {ok, ok, fallback.Config{Timeout: -1}},
		"Interval":       {ok, ok, fallback.Config{Interval: -1}},
		"MinCalls":       {ok, ok, fallback.Config{MinCalls: -1}},
		"FailureRate":    {ok, ok, fallback.Config{FailureRate: -1}},
		"NaN":            {ok, ok, fallback.Config{FailureRate: math.NaN()}},
		"ProbeInterval":  {ok, ok, fallback.Config{ProbeInterval: -1}},
		"ProbeTimeout":   {ok, ok, fallback.Config{ProbeTimeout: -1}},
		"MaxCallers":     {ok, ok, fallback.Config{MaxCallers: -1}},
		"OnFail too low": {ok, ok, fallback.Config{OnFail: -1}},
		"OnFail":         {ok, ok, fallback.Config{OnFail: fallback.FailClosed + 1}},
	} {
		_, err := fallback.New(row.primary, row.local, row.cfg)
		assert.ErrorIs(t, err, fallback.ErrConfig, name)
	}
}

// TestAnswersOfPrimary has a row for each kind of answer: the result for the caller and the effect
// on the breaker.
func TestAnswersOfPrimary(t *testing.T) {
	bug := errors.New("a reply of another form")
	isDown := func(err error) bool { return !errors.Is(err, bug) }
	for name, row := range map[string]struct {
		answer   func() (*weir.Result, error)
		isDown   func(error) bool
		by       weir.Source
		is       error
		state    fallback.State
		reported bool
		panics   uint64
	}{
		"a result": {admitted, isDown, weir.FromPrimary, nil, fallback.Closed, false, 0},
		"down": {func() (*weir.Result, error) { return nil, errDown }, isDown, weir.FromLocal,
			nil, fallback.Open, true, 0},
		"a bug": {func() (*weir.Result, error) { return nil, bug }, isDown, weir.FromLocal, nil,
			fallback.Closed, true, 0},
		"nothing": {func() (*weir.Result, error) { return nil, nil }, isDown, weir.FromLocal, nil,
			fallback.Open, true, 0},
		"a bad request": {func() (*weir.Result, error) {
			return nil, weir.ErrLimit
		}, isDown, weir.Nowhere, weir.ErrLimit, fallback.Closed, false, 0},
		"a panic": {func() (*weir.Result, error) { panic("a bug") }, isDown, weir.FromLocal, nil,
			fallback.Open, true, 1},
		"its goroutine": {func() (*weir.Result, error) {
			runtime.Goexit()
			return nil, nil
		}, isDown, weir.FromLocal, nil, fallback.Open, true, 0},
		"IsDown that panics": {func() (*weir.Result, error) { return nil, bug },
			func(error) bool { panic("a bug") }, weir.FromLocal, nil, fallback.Open, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			reported := make(chan error, 10)
			cfg := tripAtOnce
			cfg.IsDown, cfg.Timeout = row.isDown, time.Minute
			cfg.OnError = func(err error) { reported <- err }
			f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
				return row.answer()
			}), local(t), cfg)
			r := hour
			_, by, err := runSource(t.Context(), f, &r)
			assert.Equal(t, row.by, by)
			assert.ErrorIs(t, err, row.is)
			assert.Equal(t, row.state, f.Stats().State)
			assert.Equal(t, row.reported, len(reported) == 1)
			assert.Equal(t, row.panics, f.Stats().Panics)
		})
	}
}

// A probe in which IsDown panics, or primary panics or exits, leaves the breaker open and does no
// other harm.
func TestProbesThatPanicOrExit(t *testing.T) {
	for name, how := range map[string]func(){"panics": func() { panic("a bug") }, "exits": runtime.Goexit} {
		for _, inIsDown := range []bool{true, false} {
			var broken atomic.Bool
			broken.Store(true)
			cfg := tripAtOnce
			cfg.ProbeInterval = time.Millisecond
			if inIsDown {
				cfg.IsDown = func(error) bool {
					if broken.Load() && name == "panics" {
						how()
					}
					return true
				}
			}
			f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
				switch {
				case !broken.Load():
					return admitted()
				case !inIsDown:
					how()
				}
				return nil, errDown
			}), local(t), cfg)
			require.Eventually(t, func() bool {
				ask(t, f, hour)
				return f.Stats().Probes >= 3
			}, 10*time.Second, time.Millisecond)
			broken.Store(false)
			require.Eventually(t, func() bool {
				return source(t, f, hour) == weir.FromPrimary
			}, 10*time.Second, time.Millisecond)
		}
	}
}

func TestBadRequestsReachNoStrategy(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, tripAtOnce, whole)
	for bad, want := range map[weir.Request]error{
		{Limit: 1, Duration: time.Second}:                        weir.ErrID,
		{Key: "a", Limit: 1}:                                     weir.ErrScale,
		{Key: "a", Limit: 1, Duration: 1500 * time.Microsecond}:  weir.ErrScale,
		{Key: "a", Limit: 1, Duration: 366 * 24 * time.Hour}:     weir.ErrScale,
		{Key: string(make([]byte, 1025)), Duration: time.Second}: weir.ErrID,
	} {
		_, err := f.instances[0].Run(t.Context(), &bad)
		assert.ErrorIs(t, err, want)
	}
	assert.Zero(t, f.server.runs.Load())
}

// Strategies with their own limits need neither Limit nor Duration in the request.
func TestOwnLimits(t *testing.T) {
	tiers := func(t testing.TB) weir.Strategy {
		s := limiterOn(t, nil).Tiers(weir.Tier{Limit: 10, Duration: time.Hour})
		return s
	}
	limit := func(t testing.TB) weir.Strategy { return named("p", local(t), 10, time.Hour) }
	wrapped := func(t testing.TB) weir.Strategy { return near.NewDenials(tiers(t), near.DenialsConfig{}) }
	r := weir.Request{Key: "a"}
	for name, of := range map[string]func(testing.TB) weir.Strategy{"Tiers": tiers, "Limit": limit,
		"wrapped": wrapped} {
		t.Run(name, func(t *testing.T) {
			f := newFallback(t, of(t), of(t), fallback.Config{Timeout: time.Minute})
			assert.EqualValues(t, 10, most(t, f, r))
			cfg := fallback.Config{OwnLimits: true, Timeout: time.Minute}
			f = newFallback(t, weirtest.FailAll(errDown), of(t), cfg)
			assert.EqualValues(t, 10, most(t, f, r))
			cfg.OnFail = fallback.FailOpen
			f = newFallback(t, weirtest.FailAll(errDown), nil, cfg)
			res, by := ask(t, f, r)
			assert.True(t, res.Allowed() && by == weir.FromOnFail)
		})
	}
}

// A caller that cancels gets its context's error, and the call does not count for the breaker.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFallback(t, slowly(40*time.Millisecond), local(t), tripAtOnce)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		r := hour
		start := time.Now()
		_, err := f.Run(ctx, &r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Millisecond, time.Since(start))
		_, err = f.Run(ctx, &r)
		assert.ErrorIs(t, err, context.Canceled, "no strategy is called once the context is done")
		time.Sleep(time.Second)
		assert.Zero(t, f.Stats().Failures)
		assert.Equal(t, fallback.Closed, f.Stats().State)
	})
}

// slowly returns a primary whose calls take the given time.
func slowly(takes time.Duration) weir.Strategy {
	return primaryFunc(func(ctx context.Context) (*weir.Result, error) {
		select {
		case <-time.After(takes):
			return admitted()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// With a short deadline, primary gets half of the remaining time, and the caller gets a decision in
// time. Only Timeout decides whether the call failed, so short deadlines neither open the breaker
// nor keep it closed.
func TestShortDeadlines(t *testing.T) {
	for _, row := range []struct {
		takes time.Duration
		state fallback.State
	}{{40 * time.Millisecond, fallback.Closed}, {time.Hour, fallback.Open}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFallback(t, slowly(row.takes), local(t), fallback.Config{})
			for range 100 {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				r := hour
				res, by, err := runSource(ctx, f, &r)
				cancel()
				require.NoError(t, err)
				assert.True(t, res.Allowed())
				assert.Equal(t, weir.FromLocal, by)
				assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
				time.Sleep(5 * time.Millisecond)
			}
			assert.Equal(t, row.state, f.Stats().State)
			time.Sleep(2 * time.Second)
		})
	}
}

// A lease on a server that hangs opens the breaker: only round trips count as calls.
func TestLeaseOfAFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var frozen atomic.Bool
		s := newServer(func() weir.Strategy { return local(t) })
		s.passes = func(c call) (*weir.Result, error) {
			if frozen.Load() {
				<-c.ctx.Done()
				return nil, c.ctx.Err()
			}
			return c.do()
		}
		f := newFallback(t, near.NewLeases(s, near.LeaseConfig{Block: 10}), local(t), fallback.Config{})
		for range 95 { // 5 remain in the block
			ask(t, f, hour)
		}
		frozen.Store(true)
		var waited time.Duration
		for range 500 {
			start := time.Now()
			ask(t, f, hour)
			waited += time.Since(start)
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, fallback.Open, f.Stats().State)
		assert.LessOrEqual(t, waited, time.Second)
		assert.EqualValues(t, 85+5, f.Stats().Lease)
		time.Sleep(2 * time.Second)
	})
}

// A primary that ignores its context delays no caller longer than Timeout.
func TestPrimaryThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
			<-end
			return admitted()
		}), local(t), tripAtOnce)
		for range 6400 {
			start := time.Now()
			assert.Equal(t, weir.FromLocal, source(t, f, hour))
			assert.LessOrEqual(t, time.Since(start), fallback.DefaultTimeout)
			time.Sleep(100 * time.Millisecond)
		}
		lost := f.Stats().Probes
		t.Logf("%d probes lost in 640 intervals", lost)
		assert.Less(t, lost, uint64(150), "stuck probes become rarer, as each holds a goroutine")
		assert.Greater(t, lost, uint64(50))
		close(end)
		time.Sleep(20 * time.Second)
		ask(t, f, hour)
		synctest.Wait()
		assert.Equal(t, weir.FromPrimary, source(t, f, hour))
	})
}

func TestOnFail(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	r := weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
	cfg := with(fallback.Config{Now: clock.Now, Timeout: time.Minute})
	t.Run("open", func(t *testing.T) {
		cfg := cfg
		cfg.OnFail = fallback.FailOpen
		f := newFallback(t, weirtest.FailAll(errDown), nil, cfg)
		for range 10 {
			res, by := ask(t, f, r)
			assert.Equal(t, weir.Result{State: weir.Allow, TotalRequests: 2, ExpiresAt: clock.Now()}, res)
			assert.Equal(t, weir.FromOnFail, by)
		}
		r := r
		r.Cost = 6
		res, _ := ask(t, f, r)
		assert.Equal(t, weir.Result{}, res, "a cost over the limit can never pass")
	})
	t.Run("closed", func(t *testing.T) {
		cfg := cfg
		cfg.OnFail = fallback.FailClosed
		f := newFallback(t, weirtest.FailAll(errDown), nil, cfg)
		res, by := ask(t, f, r)
		assert.Equal(t, weir.Result{TotalRequests: 5, ExpiresAt: res.ExpiresAt}, res)
		assert.WithinRange(t, res.ExpiresAt, clock.Now().Add(time.Second),
			clock.Now().Add(1100*time.Millisecond), "until the next probe")
		assert.Equal(t, weir.FromOnFail, by)
	})
}

func TestLocalCannotDecideEither(t *testing.T) {
	for name, local := range map[string]weir.Strategy{
		"an error": weirtest.FailAll(weir.ErrFull),
		"nothing":  primaryFunc(func(context.Context) (*weir.Result, error) { return nil, nil }),
	} {
		f := newFallback(t, weirtest.FailAll(errDown), local, fallback.Config{})
		r := hour
		res, by, err := runSource(t.Context(), f, &r)
		assert.Nil(t, res, name)
		assert.Equal(t, weir.Nowhere, by, name)
		assert.Error(t, err, name)
		if name == "an error" {
			assert.ErrorIs(t, err, weir.ErrFull)
		}
	}
}

// Callbacks run without locks held and may call the Fallback. A panic in one is recovered.
func TestCallbacks(t *testing.T) {
	changes := make(chan fallback.Change, 10)
	var f *fleet
	cfg := tripAtOnce
	cfg.OnChange = func(c fallback.Change) {
		if c.To == fallback.Open {
			assert.Equal(t, weir.FromLocal, source(t, f.instances[0], hour))
		}
		assert.Equal(t, c.To, f.instances[0].Stats().State)
		changes <- c
		panic("a bug in the callback")
	}
	cfg.OnError = func(error) { panic("another bug") }
	f = newFleet(t, 1, fixedWindow, cfg, whole)
	i, opened := f.instances[0], f.clock.Now()
	f.server.fails(errDown)
	ask(t, i, hour)
	f.heal(t)
	assert.Equal(t, weir.FromPrimary, source(t, i, hour))
	now := f.clock.Now()
	assert.Equal(t, fallback.Change{From: fallback.Closed, To: fallback.Open, At: opened,
		Cause: errDown},
		<-changes)
	assert.Equal(t, fallback.Change{From: fallback.Open, To: fallback.HalfOpen, At: now}, <-changes)
	assert.Equal(t, fallback.Change{From: fallback.HalfOpen, To: fallback.Closed, At: now}, <-changes)
	require.Eventually(t, func() bool { return i.Stats().Panics == 4 }, time.Minute, time.Millisecond)
	stats := i.Stats()
	assert.Equal(t, now, stats.Since)
	assert.Equal(t, []uint64{1, 1, 1}, []uint64{stats.Opens, stats.Probes, stats.Failures})
	assert.EqualValues(t, 2, stats.Reconciled)
}
