package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

func TestNewRefuses(t *testing.T) {
	ok := weirtest.DenyAll()
	for name, build := range map[string]func() (*fallback.Fallback, error){
		"no primary":     func() (*fallback.Fallback, error) { return fallback.New(nil, ok, fallback.Config{}) },
		"no local":       func() (*fallback.Fallback, error) { return fallback.New(ok, nil, fallback.Config{}) },
		"no such OnFail": func() (*fallback.Fallback, error) { return fallback.New(ok, ok, fallback.Config{OnFail: 3}) },
		"too many denials": func() (*fallback.Fallback, error) {
			return fallback.New(ok, ok, fallback.Config{DenialCache: math.MaxInt})
		},
		"negative":        func() (*fallback.Fallback, error) { return fallback.New(ok, ok, fallback.Config{Instances: -1}) },
		"a negative rate": func() (*fallback.Fallback, error) { return fallback.New(ok, ok, fallback.Config{FailureRate: -1}) },
	} {
		_, err := build()
		assert.ErrorIs(t, err, fallback.ErrConfig, name)
	}
	_, err := fallback.New(ok, nil, fallback.Config{OnFail: fallback.FailClosed})
	assert.NoError(t, err, "local is only needed where it decides")
}

// What primary's errors come to: for the caller, for the breaker (Failures is 1), and for OnError.
func TestErrors(t *testing.T) {
	odd := errors.New("WRONGTYPE")
	for _, row := range []struct {
		name     string
		err      error
		by       fallback.Source
		is       error
		state    fallback.State
		reported bool
	}{
		{"an admission is primary's", nil, fallback.FromPrimary, nil, fallback.Closed, false},
		{"a dead primary opens", errDown, fallback.FromLocal, nil, fallback.Open, true},
		{"a bad burst is the caller's", fmt.Errorf("x: %w", weir.ErrLimit), fallback.Nobody, weir.ErrLimit, fallback.Closed, false},
		{"a full table is as good as dead", weir.ErrFull, fallback.FromLocal, nil, fallback.Open, true},
		{"what does not speak against it does not open", odd, fallback.FromLocal, nil, fallback.Closed, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			primary := weirtest.FailAll(row.err)
			if row.err == nil {
				primary = &weirtest.Fake{}
			}
			var reported []error
			f := newFallback(t, primary, local(t), fallback.Config{
				Failures: 1, Timeout: time.Minute, IsDown: func(err error) bool { return err != odd },
				OnError: func(err error) { reported = append(reported, err) },
			})
			r := hour
			_, by, err := f.RunSource(t.Context(), &r)
			assert.Equal(t, row.by, by)
			assert.ErrorIs(t, err, row.is)
			assert.Equal(t, row.state, f.Stats().State)
			assert.Equal(t, row.reported, len(reported) == 1)
		})
	}
}

func TestBadRequestsUseUpNoProbe(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	primary := newServer(func() weir.Strategy { return limiterOn(t, clock).FixedWindow() })
	f := newFallback(t, primary, limiterOn(t, clock).FixedWindow(),
		fallback.Config{Failures: 1, Now: clock.Now, Timeout: time.Minute})
	primary.fails(errDown)
	ask(t, f, hour)
	primary.fails(nil)
	clock.Advance(2 * time.Second)
	for bad, want := range map[weir.Request]error{
		{Limit: 1, Duration: time.Second}:                        weir.ErrID,
		{Key: "a", Limit: 1}:                                     weir.ErrScale,
		{Key: "a", Limit: 1, Duration: 1500 * time.Microsecond}:  weir.ErrScale,
		{Key: "a", Limit: 1, Duration: 366 * 24 * time.Hour}:     weir.ErrScale,
		{Key: string(make([]byte, 1025)), Duration: time.Second}: weir.ErrID,
	} {
		_, err := f.Run(t.Context(), &bad)
		assert.ErrorIs(t, err, want)
	}
	assert.EqualValues(t, 1, primary.runs.Load())
	_, by := ask(t, f, hour)
	assert.Equal(t, fallback.FromPrimary, by, "the probe was still to be had")
}

// A caller who gives up says nothing about primary, and gets the error of the context.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFallback(t, &weirtest.Fake{Answer: weirtest.Hang}, local(t), fallback.Config{Failures: 1})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		r := hour
		_, err := f.Run(ctx, &r)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, fallback.Closed, f.Stats().State)
		_, err = f.Run(ctx, &r)
		assert.ErrorIs(t, err, context.Canceled, "with a context that is done nobody is asked")
	})
}

// A caller with little time left gives half of it to primary, and has a decision in time. It opens nothing: anybody can
// set a short deadline.
func TestShortDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFallback(t, &weirtest.Fake{Answer: weirtest.Hang}, local(t), fallback.Config{Failures: 1})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		r := hour
		res, by, err := f.RunSource(ctx, &r)
		require.NoError(t, err)
		assert.True(t, res.Allowed())
		assert.Equal(t, fallback.FromLocal, by)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		assert.Equal(t, fallback.Closed, f.Stats().State)
	})
}

// Nor does it if primary's socket, which has the same deadline, notices it before the context does.
func TestShortDeadlineOnASocket(t *testing.T) {
	asked := 0
	f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
		asked++
		for end, _ := ctx.Deadline(); time.Now().Before(end); {
		}
		return nil, os.ErrDeadlineExceeded
	}), local(t), fallback.Config{Failures: 1})
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		r := hour
		_, _ = f.Run(ctx, &r)
		cancel()
	}
	assert.NotZero(t, asked)
	assert.Zero(t, f.Stats().Failures)
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFallback(t, &weirtest.Fake{Answer: weirtest.Hang}, local(t), fallback.Config{Failures: 1})
		start := time.Now()
		_, by := ask(t, f, hour)
		assert.Equal(t, fallback.FromLocal, by)
		assert.Equal(t, fallback.DefaultTimeout, time.Since(start))
		synctest.Wait()
		assert.Equal(t, fallback.Open, f.Stats().State)
	})
}

// A primary that ignores its context holds those who are inside it, and nobody else.
func TestPrimaryThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var fails atomic.Bool
		f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
			<-end
			if fails.Load() {
				return nil, errDown
			}
			return admitted()
		}), local(t), fallback.Config{Failures: 2})
		held := make(chan fallback.Source, 2)
		for range 2 {
			go func() { held <- second(ask(t, f, hour)) }()
		}
		time.Sleep(fallback.DefaultTimeout + 1)
		synctest.Wait()
		assert.Equal(t, fallback.Open, f.Stats().State, "though none has returned")
		for range 6400 {
			start := time.Now()
			_, by := ask(t, f, hour)
			assert.Equal(t, fallback.FromLocal, by)
			assert.LessOrEqual(t, time.Since(start), fallback.DefaultTimeout)
			time.Sleep(100 * time.Millisecond)
		}
		lost := f.Stats().Probes
		t.Logf("%d probes lost in 640 intervals", lost)
		assert.Less(t, lost, uint64(300), "each is a goroutine: they come more and more seldom")
		assert.Greater(t, lost, uint64(100))
		close(end)
		assert.Equal(t, fallback.FromPrimary, <-held)
		assert.Equal(t, fallback.FromPrimary, <-held)
		time.Sleep(10 * time.Second)
		assert.Equal(t, fallback.FromPrimary, second(ask(t, f, hour)))
		fails.Store(true)
		ask(t, f, hour)
		ask(t, f, hour)
		fails.Store(false)
		time.Sleep(fallback.DefaultProbeInterval * 11 / 10)
		assert.Equal(t, fallback.FromPrimary, second(ask(t, f, hour)), "all probes are back: the interval is what it was")
	})
}

func TestOnFail(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	r := weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
	t.Run("open", func(t *testing.T) {
		f := newFallback(t, weirtest.FailAll(errDown), nil, fallback.Config{
			OnFail: fallback.FailOpen, Now: clock.Now, Timeout: time.Minute,
		})
		for range 10 {
			res, by := ask(t, f, r)
			assert.Equal(t, weir.Result{State: weir.Allow, TotalRequests: 2, ExpiresAt: clock.Now()}, res)
			assert.Equal(t, fallback.FromPolicy, by)
		}
		r := r
		r.Cost = 6
		res, _ := ask(t, f, r)
		assert.Equal(t, weir.Result{}, res, "more than the limit can never pass")
	})
	t.Run("closed", func(t *testing.T) {
		f := newFallback(t, weirtest.FailAll(errDown), nil, fallback.Config{
			OnFail: fallback.FailClosed, Now: clock.Now, Timeout: time.Minute, Failures: 1, Rand: func() float64 { return 0 },
		})
		res, by := ask(t, f, r)
		assert.Equal(t, weir.Result{TotalRequests: 5, ExpiresAt: clock.Now().Add(time.Second)}, res, "until primary is tried again")
		assert.Equal(t, fallback.FromPolicy, by)
	})
}

func TestLocalCannotDecideEither(t *testing.T) {
	f := newFallback(t, weirtest.FailAll(errDown), weirtest.FailAll(weir.ErrFull), fallback.Config{})
	r := hour
	res, by, err := f.RunSource(t.Context(), &r)
	assert.Nil(t, res)
	assert.Equal(t, fallback.Nobody, by)
	assert.ErrorIs(t, err, weir.ErrFull)
}

// Callbacks run outside every lock: they may ask the Fallback itself. A panic in one harms nobody.
func TestCallbacks(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1e9, 0))
	primary := newServer(func() weir.Strategy { return limiterOn(t, clock).FixedWindow() })
	var f *fallback.Fallback
	var changes []fallback.Change
	f = newFallback(t, primary, limiterOn(t, clock).FixedWindow(), fallback.Config{
		Failures: 1, Now: clock.Now, Timeout: time.Minute,
		OnChange: func(c fallback.Change) {
			changes = append(changes, c)
			if c.To == fallback.Open {
				assert.Equal(t, fallback.FromLocal, second(ask(t, f, hour)))
			}
			assert.Equal(t, c.To, f.Stats().State)
			panic("a bug of the caller's")
		},
		OnError: func(error) { panic("another") },
	})
	primary.fails(errDown)
	ask(t, f, hour)
	primary.fails(nil)
	opened := clock.Now()
	clock.Advance(2 * time.Second)
	ask(t, f, hour)
	assert.Equal(t, []fallback.Change{
		{From: fallback.Closed, To: fallback.Open, At: opened, Cause: errDown},
		{From: fallback.Open, To: fallback.HalfOpen, At: clock.Now()},
		{From: fallback.HalfOpen, To: fallback.Closed, At: clock.Now()},
	}, changes)
	stats := f.Stats()
	assert.EqualValues(t, 4, stats.Panics)
	assert.Equal(t, clock.Now(), stats.Since)
	assert.Equal(t, []uint64{1, 1, 1, 1}, []uint64{stats.Opens, stats.Probes, stats.Failures, stats.Primary})
	assert.EqualValues(t, 2, stats.Local)
	assert.EqualValues(t, 2, stats.Carried)
}
