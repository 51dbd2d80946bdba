package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// fail returns a call that ends with err.
func fail(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// testServer returns a server whose breaker opens at the first failure.
func testServer(change func(*server)) *server {
	s := &server{
		cfg: Config{Interval: time.Second, Stall: -1, MinCalls: 1, FailureRate: 0.5,
			ProbeInterval: time.Second, Timeout: 50 * time.Millisecond, ProbeTimeout: time.Second,
			Now: time.Now},
		try: func(context.Context, string) (time.Time, error) { return time.Now(), nil },
	}
	if change != nil {
		change(s)
	}
	s.open()
	return s
}

func stats(s *server) (st Stats) {
	s.stats(&st)
	return st
}

// call makes a call of s.
func (s *server) call(ctx context.Context, b *breaker, op func(context.Context) error) error {
	v := &visit{f: &Fallback{server: s, cfg: s.cfg}, b: cmp.Or(b, s.one), peeks: b == nil,
		a: new(account), r: &weir.Request{Key: "a"}, began: time.Now()}
	return v.call(ctx, op)
}

// Each way in which a call ends: the error of its caller, the breaker's state, and what is counted,
// on the goroutine of the caller and on another.
func TestEndsOfCalls(t *testing.T) {
	late := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, row := range map[string]struct {
		op               func(context.Context) error
		alone            bool // only on a goroutine of its own
		want             error
		state            State
		failures, panics uint64
		took             time.Duration
	}{
		"an answer":   {op: fail(nil)},
		"bad request": {op: fail(weir.ErrLimit), want: weir.ErrLimit},
		"a failure":   {op: fail(errTest), want: errUndecided, state: Open, failures: 1},
		"its deadline": {op: late, want: errUndecided, state: Open, failures: 1,
			took: 50 * time.Millisecond},
		"no deadline": {func(context.Context) error {
			time.Sleep(time.Hour) // in a bubble
			return nil
		}, true, errUndecided, Open, 1, 0, 50 * time.Millisecond},
		"a panic": {func(context.Context) error { panic("a bug") }, true, errUndecided, Open, 1, 1, 0},
		"its goroutine": {func(context.Context) error {
			runtime.Goexit()
			return nil
		}, true, errUndecided, Open, 1, 0, 0},
	} {
		for _, alone := range []bool{true, false} {
			if row.alone && !alone {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				var called []time.Duration
				s := testServer(func(s *server) {
					s.prompt = !alone
					s.cfg.OnCall = func(took time.Duration, _ error) { called = append(called, took) }
				})
				assert.Equal(t, row.want, s.call(t.Context(), s.breaker("a"), row.op), name)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				assert.Equal(t, []time.Duration{row.took}, called, "%s: it ends once", name)
				st := stats(s)
				assert.Equal(t, row.state, st.State, name)
				assert.Equal(t, []uint64{row.failures, row.panics}, []uint64{st.Failures, st.Panics}, name)
			})
		}
	}
}

// Without a breaker a call is not recorded, and an error that IsDown excuses is no failure.
func TestCallsThatAreNotRecorded(t *testing.T) {
	var errs []error
	s := testServer(func(s *server) {
		s.prompt = true
		s.cfg.IsDown = func(err error) bool { return err == errTest }
		s.cfg.OnError = func(err error) { errs = append(errs, err) }
	})
	other := errors.New("a bug")
	assert.Equal(t, errUndecided, s.call(t.Context(), nil, fail(errTest)))
	assert.Equal(t, Closed, stats(s).State)
	assert.Equal(t, errUndecided, s.call(t.Context(), s.breaker("a"), fail(other)))
	assert.Equal(t, Closed, stats(s).State)
	assert.Equal(t, errUndecided, s.call(t.Context(), s.breaker("a"), fail(errTest)))
	assert.Equal(t, Open, stats(s).State)
	assert.Equal(t, []error{errTest, other, errTest}, errs)
}

// A probe that is slow is tried again within ProbeTimeout; one that fails is not before the next
// call after ProbeInterval. The server is up once an attempt took at most Timeout.
func TestProbes(t *testing.T) {
	for _, row := range []struct {
		name     string
		takes    []time.Duration // of the attempts
		err      error
		attempts int
		state    State
	}{
		{"it answers", []time.Duration{50 * time.Millisecond}, nil, 1, Closed},
		{"it is slow at first", []time.Duration{51 * time.Millisecond, 200 * time.Millisecond, 0}, nil, 3,
			Closed},
		{"it is slow", []time.Duration{60e6, 60e6, 60e6, 60e6}, nil, 4, Open},
		{"it fails", []time.Duration{0}, errTest, 1, Open},
		{"it hangs", []time.Duration{time.Hour}, nil, 1, Open},
	} {
		synctest.Test(t, func(t *testing.T) {
			tried := 0
			var changes []State
			s := testServer(func(s *server) {
				s.cfg.OnChange = func(change Change) { changes = append(changes, change.To) }
				s.name, s.prompt = "probe of b", true
				s.try = func(_ context.Context, key string) (time.Time, error) {
					assert.Equal(t, fmt.Sprintf("probe of b 1 %d 0", tried), key)
					takes := row.takes[tried]
					tried++
					time.Sleep(time.Second / 8) // to connect
					began := time.Now()
					time.Sleep(takes)
					return began, row.err
				}
			})
			b := s.breaker("a")
			call := func(err error) error { return s.call(t.Context(), b, fail(err)) }
			require.NoError(t, call(nil))
			require.Equal(t, errUndecided, call(errTest))
			assert.Equal(t, errUndecided, call(nil), "it is not called")
			synctest.Wait()
			assert.Zero(t, tried, "%s: too early", row.name)
			time.Sleep(1100 * time.Millisecond)
			began := time.Now()
			assert.Equal(t, errUndecided, call(nil))
			assert.Equal(t, errUndecided, call(nil), "one at a time")
			assert.Zero(t, time.Since(began), "nobody waits for the probe")
			time.Sleep(1050 * time.Millisecond)
			synctest.Wait()
			assert.Equal(t, []any{row.attempts, []State{Open, HalfOpen, row.state}}, []any{tried, changes},
				row.name)
			assert.Equal(t, row.state == Closed, b.Closed(), row.name)
			assert.EqualValues(t, 1, stats(s).Probes, row.name)
			time.Sleep(time.Hour)
		})
	}
}

// Parts that share a breaker are probed with a key of the part whose call starts the probe.
func TestProbeKeysOfPartsThatShareABreaker(t *testing.T) {
	part := func(key string) string { part, _, _ := strings.Cut(key, ":"); return part }
	s := testServer(func(s *server) { s.cfg.Partition = part })
	assert.Equal(t, "part 2000", part(s.probeKey("probe", "part 2000:a")))
}

// A caller waits for half of the time it has left, or until it gives up. Both end the wait and not
// the call, which counts as late only after Timeout.
func TestCallersWithLittleTime(t *testing.T) {
	for _, row := range []struct {
		name     string
		deadline time.Duration // of the caller; 0: it gives up after 7 ms
		takes    time.Duration
		waits    time.Duration
		want     error
		short    uint64
		state    State
	}{
		{"an answer in time", 40 * time.Millisecond, 19 * time.Millisecond, 19 * time.Millisecond, nil, 0,
			Closed},
		{"a short deadline", 40 * time.Millisecond, 30 * time.Millisecond, 20 * time.Millisecond,
			errUndecided, 1, Closed},
		{"too late for all", 40 * time.Millisecond, 60 * time.Millisecond, 20 * time.Millisecond,
			errUndecided, 1, Open},
		{"enough time", time.Minute, 60 * time.Millisecond, 50 * time.Millisecond, errUndecided, 0, Open},
		{"it gives up", 0, 30 * time.Millisecond, 7 * time.Millisecond, context.Canceled, 0, Closed},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ends []error
			s := testServer(func(s *server) {
				s.cfg.OnCall = func(_ time.Duration, err error) { ends = append(ends, err) }
			})
			ctx, cancel := context.WithCancel(t.Context())
			if row.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
			} else {
				time.AfterFunc(7*time.Millisecond, cancel)
			}
			defer cancel()
			began := time.Now()
			err := s.call(ctx, s.breaker("a"), func(context.Context) error {
				time.Sleep(row.takes)
				return nil
			})
			assert.ErrorIs(t, err, row.want, row.name)
			assert.Equal(t, row.waits, time.Since(began), row.name)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Len(t, ends, 1, row.name)
			assert.Equal(t, row.state == Open, ends[0] == errTimeout, row.name)
			st := stats(s)
			assert.Equal(t, []any{row.short, row.state}, []any{st.ShortDeadlines, st.State}, row.name)
		})
	}
}
