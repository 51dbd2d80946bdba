package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

func TestInspectNeitherCountsNorCreates(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	clock.Set(epoch.Add(1500*time.Millisecond + 1))
	want := weir.Bucket{ID: "id", Scale: time.Second, Number: 1, Ends: epoch.Add(2 * time.Second)}
	got := weir.MustInspect(t, l, "id", 1000)
	assert.Equal(t, want, got, "an id without a bucket")
	require.Zero(t, l.Stats().Buckets)

	weir.MustCheck(t, l, "id", 1000, 1)
	clock.Advance(100 * time.Millisecond)
	weir.MustCheck(t, l, "id", 1000, 1)
	want.Count, want.Denied = 1, 1
	want.Created, want.Modified = epoch.Add(1500*time.Millisecond+1),
		epoch.Add(1600*time.Millisecond+1)
	for range 2 {
		got = weir.MustInspect(t, l, "id", 1000)
		assert.Equal(t, want, got)
	}
}

func TestBucketsYieldsEachBucketOnce(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: time.Millisecond})
	for i := range 10 {
		weir.MustCheck(t, l, fmt.Sprint(i), int64(1000+i%2), 5)
	}
	seen := map[string]int{}
	for b := range l.Buckets() {
		seen[b.ID]++
		// no lock is held; otherwise this would deadlock
		inspected := weir.MustInspect(t, l, b.ID, b.Scale.Milliseconds())
		assert.Equal(t, inspected, b)
	}
	assert.Len(t, seen, 10)
	for _, n := range seen {
		assert.Equal(t, 1, n)
	}
	for range l.Buckets() {
		break // an iteration may stop early
	}
	clock.Advance(time.Hour)
	assert.Equal(t, 10, l.Sweep())
	for b := range l.Buckets() {
		t.Error("swept, and yielded", b)
	}
}

func TestResetClearsOneIDInOneScale(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	for _, id := range []string{"a", "b"} {
		for _, scale := range []int64{1000, 2000} {
			weir.MustCheck(t, l, id, scale, 1)
		}
	}
	require.NoError(t, l.Reset("a", 1000))
	require.NoError(t, l.Reset("nobody", 1000))
	for _, c := range []struct {
		id      string
		scale   int64
		allowed bool
	}{{"a", 1000, true}, {"a", 2000, false}, {"b", 1000, false}, {"b", 2000, false}} {
		res := weir.MustCheck(t, l, c.id, c.scale, 1)
		assert.Equal(t, c.allowed, res.Allowed(), "%v", c)
	}
	s := l.Stats()
	assert.EqualValues(t, 5, s.Allowed, "reset hits stay in the Stats")
	assert.EqualValues(t, 3, s.Denied)
	assert.Equal(t, 4, s.Buckets)
}

// Between two resets at most limit are admitted. A concurrent hit counts before or after the reset.
func TestResetDuringCheckRate(t *testing.T) {
	const limit, callers, resets = 10, 8, 2000
	l, _ := newLimiter(t, weir.Config{})
	var admitted, asked atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := l.CheckRate("id", 1000, limit)
				if err != nil || res.TotalRequests > limit {
					t.Error(res, err)
				}
				asked.Add(1)
				if res.Allowed() {
					admitted.Add(1)
				}
			}
		})
	}
	for range resets {
		require.NoError(t, l.Reset("id", 1000))
	}
	close(stop)
	wg.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64((resets+1)*limit))
	s := l.Stats()
	assert.EqualValues(t, admitted.Load(), s.Allowed)
	assert.LessOrEqual(t, s.Buckets, 1)
}

func TestStatsAddUp(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{MaxBuckets: 3, Timeout: time.Nanosecond})
	f := l.FixedWindow()
	run := func(key string, cost, limit uint64) {
		_, err := f.Run(t.Context(),
			&weir.Request{Key: key, Limit: limit, Duration: time.Second, Cost: cost})
		if err != nil {
			require.ErrorIs(t, err, weir.ErrFull)
		}
	}
	for range 3 { // repeated after a sweep, as swept buckets stay counted
		for i := range 5 {
			run("a", uint64(i), 7) // 1+1+2+3 admitted, 4 denied
		}
		run("b", 9, 7) // can never pass
		run("b", 1, 7)
		run("c", 1, 7)
		run("d", 1, 7) // full
		clock.Advance(time.Second + time.Nanosecond)
		require.Equal(t, 3, l.Sweep())
	}
	_, err := l.CheckRate("", 1, 1)
	require.Error(t, err)
	r := &weir.Request{Key: "a", Limit: 9, Duration: time.Second, Cost: 3}
	res := weir.MustRun(t, f, r)
	require.NoError(t, ops.Refund(t.Context(), f, r, res))
	require.NoError(t, ops.Charge(t.Context(), f, r))
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: 5, ExpiresAt: res.ExpiresAt}))
	require.NoError(t, l.Reset("a", 1000))
	l.Close()
	_, err = l.CheckRate("a", 1, 1)
	require.ErrorIs(t, err, weir.ErrClosed)
	s := l.Stats()
	assert.Positive(t, s.LastSweep)
	s.LastSweep = 0
	assert.Equal(t, weir.Stats{
		Checks: 30, Allowed: 19, Denied: 6, Invalid: 1, Full: 3, Closed: 1,
		Buckets: 0, MaxBuckets: 3, Swept: 9, Sweeps: 3,
	}, s)
}

func TestStatsAddUpDuringConcurrentCalls(t *testing.T) {
	const callers, each = 8, 1500
	l, clock := newLimiter(t, weir.Config{})
	var allowed, denied atomic.Uint64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				res, err := l.CheckRate(fmt.Sprint(i%7), 1, 2)
				switch {
				case err != nil:
					t.Error(err)
				case res.Allowed():
					allowed.Add(1)
				default:
					denied.Add(1)
				}
				if i%10 == c {
					clock.Advance(time.Millisecond / 2)
				}
				if i%100 == 0 {
					l.Sweep() // within the Timeout, so no bucket in use is removed
				}
			}
		})
	}
	wg.Wait()
	s := l.Stats()
	assert.Equal(t, allowed.Load(), s.Allowed)
	assert.Equal(t, denied.Load(), s.Denied)
	assert.EqualValues(t, callers*each, s.Checks)
}

func TestRefundWithinTheSameWindowOnly(t *testing.T) {
	for _, c := range []struct {
		name    string
		after   time.Duration // of the refund
		cost    uint64
		deny    bool
		want    uint64 // count of the current window, with 5 taken in window 0 and 1 in the next
		refunds int
	}{
		{"at once", 0, 2, false, 3, 1},
		{"at the end of the window", time.Second - 1, 2, false, 3, 1},
		{"never below zero", 0, 2, false, 0, 9},
		{"after the window nothing", time.Second, 1, false, 1, 1},
		{"a denial refunds nothing", 0, 2, true, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{})
			f := l.FixedWindow()
			all := &weir.Request{Key: "k", Limit: 5, Duration: time.Second, Cost: 5}
			taken := weir.MustRun(t, f, all)
			if c.deny {
				taken = weir.MustRun(t, f, all)
			}
			if c.after > 0 {
				clock.Advance(c.after)
			}
			if c.after >= time.Second {
				weir.MustRun(t, f, &weir.Request{Key: "k", Limit: 5, Duration: time.Second})
			}
			for range c.refunds {
				require.NoError(t, ops.Refund(t.Context(), f, &weir.Request{Key: "k", Limit: 5, Duration: time.Second,
					Cost: c.cost}, taken))
			}
			b := weir.MustInspect(t, l, "k", 1000)
			assert.Equal(t, c.want, b.Count)
		})
	}
}

func TestSeedRaisesAndNeverLowers(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	f := l.FixedWindow()
	r := &weir.Request{Key: "k", Limit: 10, Duration: time.Second}
	count := func() uint64 {
		return weir.MustInspect(t, l, "k", 1000).Count
	}
	end := epoch.Add(time.Second)
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: 9, ExpiresAt: epoch}))
	assert.Zero(t, l.Stats().Buckets, "a period that has ended")
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: 9, ExpiresAt: end}))
	assert.EqualValues(t, 9, count())
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: 3, ExpiresAt: end}))
	assert.EqualValues(t, 9, count(), "never lowered")
	clock.Advance(time.Millisecond)
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: 12,
		ExpiresAt: epoch.Add(time.Microsecond)}))
	assert.EqualValues(t, 9, count(),
		"a count that expired, though in the current window, is not applied")
	require.NoError(t, ops.Charge(t.Context(), f, &weir.Request{Key: "k", Limit: 10,
		Duration: time.Second, Cost: 5}))
	assert.EqualValues(t, 14, count(), "charged beyond the limit")
	require.NoError(t, ops.Charge(t.Context(), f, &weir.Request{Key: "k", Limit: 10, Duration: time.Second,
		Cost: math.MaxUint64}))
	assert.Equal(t, uint64(maxCount), count(), "the count saturates")
	require.NoError(t, ops.Seed(t.Context(), f, r, &weir.Result{TotalRequests: math.MaxUint64, ExpiresAt: end}))
	assert.Equal(t, uint64(maxCount), count())
	assert.Zero(t, l.Stats().Allowed, "another store's hits are not this limiter's")
	clock.Advance(time.Second)
	assert.Zero(t, count())
}

// Prometheus takes a falling counter for a restart, and adds its whole value to the rate.
func TestStatsNeverFall(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	s, r := l.FixedWindow(), &weir.Request{Key: "a", Limit: 1 << 40, Duration: time.Hour, Cost: 5}
	const calls = 10_000
	var callers errgroup.Group
	for range 2 {
		callers.Go(func() error {
			for range calls {
				res, err := s.Run(context.Background(), r)
				if err = errors.Join(err, ops.Refund(context.Background(), s, r, res)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for last, a := uint64(0), uint64(0); a < 2*calls; last = a {
		a = l.Stats().Allowed
		require.GreaterOrEqual(t, a, last)
	}
	require.NoError(t, callers.Wait())
	assert.InDelta(t, 2*calls, l.Stats().Allowed, 10)
}

// Stats counts each decision once, whatever else changes the counts that it adds up.
func TestStatsCountDecisionsOnly(t *testing.T) {
	for _, name := range subjectNames {
		t.Run(name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{})
			other, ahead := newLimiter(t, weir.Config{})
			s, saver := subjects(t, l)[name], subjects(t, other)[name]
			rnd := rand.New(rand.NewPCG(1, 1))
			var want weir.Stats
			for i := range 600 {
				clock.Advance(time.Duration(rnd.Int64N(3) * rnd.Int64N(200_000_000)))
				ahead.Set(time.Unix(0, clock.Now().UnixNano()).UTC())
				r := &weir.Request{
					Key: snapshotIDs[rnd.IntN(len(snapshotIDs))], Limit: 12, Cost: rnd.Uint64N(14),
					Duration: time.Duration(1+rnd.IntN(2)) * time.Second,
				}
				counted := &weir.Result{TotalRequests: r.Cost + 3, ExpiresAt: clock.Now().Add(r.Duration)}
				var err error
				switch rnd.IntN(24) {
				case 0:
					err = ops.Charge(t.Context(), s, r)
				case 1, 2:
					err = ops.Refund(t.Context(), s, r, counted)
				case 3:
					err = ops.Seed(t.Context(), s, r, counted)
				case 4:
					_, err = ops.Peek(t.Context(), s, r)
				case 5:
					err = ops.Reset(t.Context(), s, r)
				case 6:
					l.Sweep()
				case 7:
					weir.MustRun(t, saver, r)
					err = l.Load(bytes.NewReader(saved(t, other)))
				case 8:
					_, err = ops.ResetPrefix(t.Context(), s, "a", nil)
				default:
					var res *weir.Result
					if res, err = s.Run(t.Context(), r); err == nil && res.Allowed() {
						want.Allowed++
					} else if err == nil {
						want.Denied++
					}
				}
				require.NoError(t, err)
				got := l.Stats()
				require.Equal(t, want.Allowed, got.Allowed, "admitted, step %d", i)
				require.Equal(t, want.Denied, got.Denied, "denied, step %d", i)
			}
			require.NotZero(t, want.Allowed)
			require.NotZero(t, want.Denied)
		})
	}
}

// A limit's keys are reset by its strategy, and those of no other limit or strategy.
func TestResetPrefixOfALimit(t *testing.T) {
	l := weir.MustNew(t, weir.Config{})
	tiers := weir.MustTiers(t, l, weir.Tier{Limit: 1, Duration: time.Hour})
	for name, of := range map[string]func(n uint64, d time.Duration) *weir.Limit{
		"FixedWindow": l.FixedWindow().Limit, "SlidingWindow": l.SlidingWindow().Limit,
		"TokenBucket": l.TokenBucket(1).Limit, "SlidingLog": l.SlidingLog().Limit,
		"LeakyBucket": l.LeakyBucket(0).Limit, "Counter": l.Counter().Limit, "List": l.List().Limit,
		"Calendar": func(n uint64, _ time.Duration) *weir.Limit {
			return l.Calendar(weir.Year, nil).Limit(n)
		},
		"Tiers": func(uint64, time.Duration) *weir.Limit { return tiers.Limit() },
	} {
		daily, other := of(1, time.Hour).Named("daily"), of(1, time.Hour).Named("dailies")
		unnamed := of(1, time.Hour)
		for _, key := range []string{"a", "bbbbbbbbbb"} {
			for _, m := range []*weir.Limit{daily, other, unnamed} {
				require.True(t, m.Allow(key), "%s: %v", name, m)
			}
		}
		n, err := ops.ResetPrefix(t.Context(), weir.CounterOf(daily), "", nil)
		require.NoError(t, err)
		assert.Equal(t, 2, n, name)
		assert.True(t, daily.Allow("a"), name)
		assert.False(t, other.Allow("a"), name)
		assert.False(t, unnamed.Allow("a"), name)
		assert.False(t, daily.Allow("a"), name)
	}
}

// prefixed are the strategies that can reset a prefix: all of them.
func prefixed(t testing.TB, l *weir.Limiter) map[string]weir.Strategy {
	tiers := weir.MustTiers(t, l, weir.Tier{Limit: 1, Duration: time.Hour})
	return map[string]weir.Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(),
		"TokenBucket": l.TokenBucket(0),
		"SlidingLog":  l.SlidingLog(), "LeakyBucket": l.LeakyBucket(0), "Counter": l.Counter(),
		"List":  l.List(),
		"Tiers": tiers,
	}
}

func TestResetPrefixOfTheLongestDuration(t *testing.T) {
	s := weir.MustNew(t, weir.Config{}).SlidingWindow()
	r := &weir.Request{Key: "a", Limit: 1, Duration: 365 * 24 * time.Hour}
	require.True(t, weir.MustRun(t, s, r).Allowed())
	n, err := ops.ResetPrefix(t.Context(), s, "", nil)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.True(t, weir.MustRun(t, s, r).Allowed())
}

func TestResetPrefix(t *testing.T) {
	l := weir.MustNew(t, weir.Config{Now: weirtest.NewClock(time.Unix(1_700_000_000, 0)).Now})
	strategies := prefixed(t, l)
	const keys = 300
	long := strings.Repeat("x", 200)
	ask := func(s weir.Strategy, key string) bool {
		return weir.MustRun(t, s, &weir.Request{Key: key, Limit: 1, Duration: time.Hour}).Allowed()
	}
	all := func(s weir.Strategy, prefix string) (admitted int) {
		for n := range keys {
			if ask(s, fmt.Sprint(prefix, n)) {
				admitted++
			}
		}
		return admitted
	}
	for name, s := range strategies {
		for _, prefix := range []string{"a:", "b:", long} {
			require.Equal(t, keys, all(s, prefix), name)
		}
	}
	for name, s := range strategies {
		reset := func(prefix string) int {
			var seen, done int
			n, err := ops.ResetPrefix(t.Context(), s, prefix, func(s, r int) {
				seen, done = s, r
			})
			require.NoError(t, err)
			assert.Equal(t, n, done, name)
			assert.GreaterOrEqual(t, seen, n, name)
			return n
		}
		assert.Equal(t, keys, reset("a:"), name)
		gone := 0
		if name == "LeakyBucket" { // which keeps an empty bucket for those who wait
			gone = keys
		}
		assert.Equal(t, gone, reset("a:"), name)
		assert.Equal(t, keys, all(s, "a:"), "%s: they are new", name)
		assert.Zero(t, all(s, "b:"), "%s: others are not", name)
		assert.Equal(t, 11, reset("a:17"), "%s: a:17, and a:170 to a:179", name)
		assert.Equal(t, keys, reset(long), name)
		assert.Equal(t, keys, all(s, long), name)
		assert.Equal(t, 3*keys-11+min(gone, 11), reset(""), name)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ops.ResetPrefix(ctx, s, "", nil)
		assert.ErrorIs(t, err, context.Canceled, name)
	}
	require.NoError(t, l.Close())
	for name, s := range strategies {
		_, err := ops.ResetPrefix(t.Context(), s, "", nil)
		assert.ErrorIs(t, err, weir.ErrClosed, name)
	}
}

// besides returns how many hits of keys that do not begin with a prefix are admitted beyond their
// limits, while a prefix is reset over and over.
func besides(t *testing.T, prefix string) (over int64) {
	l := weir.MustNew(t, weir.Config{})
	for name, s := range map[string]weir.Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(), "SlidingLog": l.SlidingLog(),
	} {
		var admitted, done, resets atomic.Int64
		var callers errgroup.Group
		for n := range 4 {
			callers.Go(func() error {
				defer done.Add(1)
				for i := range 600 {
					if i%200 == 0 { // however busy the machine is, resets come between the hits
						for before := resets.Load(); resets.Load() < before+2; {
							runtime.Gosched()
						}
					}
					for _, key := range []string{fmt.Sprint("a", i), fmt.Sprint("b", i%50)} {
						res, err := s.Run(t.Context(),
							&weir.Request{Key: key, Limit: 10, Duration: 300 * 24 * time.Hour})
						if err != nil {
							return fmt.Errorf("%s, %d: %w", name, n, err)
						}
						if res.Allowed() && key[0] == 'b' {
							admitted.Add(1)
						}
					}
				}
				return nil
			})
		}
		for done.Load() < 4 {
			_, err := ops.ResetPrefix(t.Context(), s, prefix, nil)
			require.NoError(t, err)
			resets.Add(1)
		}
		require.NoError(t, callers.Wait())
		over += admitted.Load() - 50*10
	}
	return over
}

func TestResetPrefixLeavesOtherKeysExact(t *testing.T) { assert.Zero(t, besides(t, "a")) }

// The control: the same test rejects a reset of other keys.
func TestResetPrefixLeavesOtherKeysExactControl(t *testing.T) { assert.Positive(t, besides(t, "")) }

// A Seed of a period that is over, before the call or while it is made, counts nothing.
func TestSeedAfterItsPeriodCountsNothing(t *testing.T) {
	start := time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)
	for kind, of := range map[string]func(*weir.Limiter) weir.Strategy{
		"FixedWindow":   func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
		"SlidingWindow": func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
		"Counter":       func(l *weir.Limiter) weir.Strategy { return l.Counter() },
		"TokenBucket":   func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
		"SlidingLog":    func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		"List":          func(l *weir.Limiter) weir.Strategy { return l.List() },
		"LeakyBucket":   func(l *weir.Limiter) weir.Strategy { return l.LeakyBucket(2) },
	} {
		for readings := range 2 { // of the clock before the period is over
			var armed atomic.Bool
			var read atomic.Int64
			l := weir.MustNew(t, weir.Config{Now: func() time.Time {
				if armed.Load() && read.Add(1) > int64(readings) {
					return start.Add(61 * time.Second)
				}
				return start
			}})
			s, r := of(l), &weir.Request{Key: "k", Limit: 10, Duration: time.Minute}
			armed.Store(true)
			err := ops.Seed(t.Context(), s, r, &weir.Result{State: weir.Allow, TotalRequests: 7,
				ExpiresAt: start.Add(time.Minute)})
			require.NoError(t, err)
			assert.Zero(t, weir.Counted(t, s, r), "%s, %d readings", kind, readings)
			if readings == 0 {
				assert.Zero(t, l.Stats().Buckets, "%s: nothing is kept", kind)
			}
		}
	}
}

func forecasters(l *weir.Limiter) map[string]weir.Strategy {
	return map[string]weir.Strategy{
		"fixed window": l.FixedWindow(), "counter": l.Counter(), "list": l.List(),
		"sliding window": l.SlidingWindow(), "token bucket": l.TokenBucket(0),
		"small token bucket": l.TokenBucket(7), "large token bucket": l.TokenBucket(50),
	}
}

// peekMore is what Forecast saves: a look at a request for one more than is left. Its denial names
// the instant.
func peekMore(t *testing.T, s weir.Strategy, r weir.Request, admitted *weir.Result) time.Time {
	limit := r.Limit
	if burst := weir.CounterOf(s).About().Burst; burst > 0 {
		limit = burst
	}
	r.Cost = admitted.Remaining(limit) + 1
	res := weir.MustPeek(t, s, &r)
	require.False(t, res.Allowed(), "one more than is left")
	return res.ExpiresAt
}

func TestForecastIsWhatAPeekFinds(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for name, s := range forecasters(l) {
		rnd := rand.New(rand.NewPCG(21, 22))
		for range 3000 {
			clock.Advance(time.Duration(rnd.Int64N(300)) * time.Millisecond / 7)
			r := weir.Request{
				Key:      fmt.Sprintf("a caller with a number: %d", rnd.IntN(3)), // a long one, too
				Limit:    1 + rnd.Uint64N(30),
				Duration: time.Duration(1+100*rnd.IntN(3)) * time.Millisecond,
				Cost:     rnd.Uint64N(9),
			}
			res := weir.MustRun(t, s, &r)
			if !res.Allowed() {
				continue
			}
			more, err := ops.Forecast(context.Background(), s, &r, res)
			require.NoError(t, err)
			require.True(t, peekMore(t, s, r, res).Equal(more), "%s, %+v: %+v, forecast %v", name, r, res,
				more)
		}
	}
}

func TestForecastKnowsWhatItCannotSay(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	r := &weir.Request{Key: "a", Limit: 10, Duration: time.Second}
	for name, s := range forecasters(l) {
		more, err := ops.Forecast(context.Background(), s, r, &weir.Result{State: weir.Allow})
		require.NoError(t, err)
		assert.Zero(t, more, "%s: nothing was taken", name)
	}
	s, end := l.SlidingWindow(), clock.Now().Add(2*time.Second)
	taken := &weir.Result{State: weir.Allow, TotalRequests: 3, ExpiresAt: end}
	more, err := ops.Forecast(context.Background(), s, r, taken)
	require.NoError(t, err)
	assert.Equal(t, end, more, "nothing is counted any more")
	weir.MustRun(t, s, r)
	more, err = ops.Forecast(context.Background(), s, r, taken)
	require.NoError(t, err)
	assert.Equal(t, end, more, "less is counted than there was")
	for _, s := range []weir.Strategy{s, l.TokenBucket(0)} {
		_, err = ops.Forecast(context.Background(), s, &weir.Request{Limit: 10, Duration: time.Second}, taken)
		assert.ErrorIs(t, err, weir.ErrID)
	}
}

func TestForecastAllocatesNothing(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	ctx, r := context.Background(), &weir.Request{Key: "a", Limit: 1000, Duration: time.Second}
	for name, s := range forecasters(l) {
		c := weir.CounterOf(s)
		op := &weir.Op{Counter: c, Verb: weir.OpForecast, Request: *r, Result: *weir.MustRun(t, s, r)}
		list := []*weir.Op{op}
		assert.Zero(t, testing.AllocsPerRun(100, func() { c.Do(ctx, list) }), name)
		assert.NotZero(t, op.More, name)
	}
}
