package weir_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

var epoch = time.UnixMilli(0).UTC()

func newLimiter(t testing.TB, cfg weir.Config) (*weir.Limiter, *weirtest.Clock) {
	t.Helper()
	clock := weirtest.NewClock(epoch)
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	return weir.MustNew(t, cfg), clock
}

const msec = int64(time.Millisecond)

func setMs(c *weirtest.Clock, ms int64) { c.Set(time.UnixMilli(ms).UTC()) }

func TestNewRefusesNegativeFields(t *testing.T) {
	for field, cfg := range map[string]weir.Config{
		"MaxBuckets -1": {MaxBuckets: -1}, "Timeout -1ns": {Timeout: -1},
		"SweepEvery -1ns": {SweepEvery: -1},
	} {
		_, err := weir.New(cfg)
		assert.ErrorContains(t, err, "negative")
		assert.ErrorContains(t, err, field)
	}
}

// call is one call in a scenario and its expected Result.
type call struct {
	at      time.Duration // after the epoch
	cost    uint64
	limit   uint64
	allowed bool
	total   uint64
	expires time.Duration // after the epoch; -1 for the zero time
}

const maxCount = 1<<48 - 2 // documented by CheckRate

func TestFixedWindowDecisions(t *testing.T) {
	const s = time.Second // the scale
	for _, c := range []struct {
		name  string
		calls []call
	}{
		{"a full window denies until its end", []call{
			{0, 1, 2, true, 1, s}, {s / 2, 1, 2, true, 2, s}, {s - 1, 1, 2, false, 2, s},
		}},
		{"the boundary opens the next window", []call{
			{0, 1, 1, true, 1, s}, {s - 1, 1, 1, false, 1, s}, {s, 1, 1, true, 1, 2 * s},
		}},
		{"twice the limit fits around a boundary", []call{
			{s - 1, 3, 3, true, 3, s}, {s, 3, 3, true, 3, 2 * s}, {s, 1, 3, false, 3, 2 * s},
		}},
		{"before the epoch windows are aligned to it too", []call{
			{-1, 1, 1, true, 1, 0}, {-1, 1, 1, false, 1, 0}, {0, 1, 1, true, 1, s},
		}},
		{"a cost that does not fit leaves room for one that does", []call{
			{0, 8, 10, true, 8, s}, {0, 5, 10, false, 8, s}, {0, 2, 10, true, 10, s},
		}},
		{"a cost over the limit can never pass", []call{
			{0, 11, 10, false, 0, -1}, {0, 4, 10, true, 4, s}, {0, 11, 10, false, 4, -1},
			{0, math.MaxUint64, 10, false, 4, -1}, {0, 6, 10, true, 10, s},
		}},
		{"a cost of 0 is a hit", []call{{0, 0, 1, true, 1, s}, {0, 0, 1, false, 1, s}}},
		{"limit 0 can never pass", []call{{0, 1, 0, false, 0, -1}, {s, 1, 0, false, 0, -1}}},
		{"a limit that rises keeps what was used", []call{
			{0, 1, 1, true, 1, s}, {0, 1, 1, false, 1, s}, {0, 1, 3, true, 2, s},
		}},
		{"a limit that falls keeps what was used", []call{
			{0, 5, 5, true, 5, s}, {0, 1, 3, false, 5, s}, {s, 1, 3, true, 1, 2 * s},
		}},
		{"a caller who hammers is let in at the start of the next window", []call{
			{0, 1, 1, true, 1, s}, {0, 1, 1, false, 1, s}, {s / 2, 1, 1, false, 1, s},
			{s - 1, 1, 1, false, 1, s},
			{s, 1, 1, true, 1, 2 * s},
		}},
		{"limits beyond 2^48-2 count as that", []call{
			{0, math.MaxInt64, math.MaxUint64, true, maxCount, s},
			{0, 1, math.MaxUint64, false, maxCount, s},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{})
			for i, a := range c.calls {
				clock.Set(epoch.Add(a.at))
				want := weir.Result{TotalRequests: a.total}
				if a.allowed {
					want.State = weir.Allow
				}
				if a.expires >= 0 {
					want.ExpiresAt = epoch.Add(a.expires)
				}
				r := &weir.Request{Key: "id", Limit: a.limit, Duration: s, Cost: a.cost}
				peeked := weir.MustPeek(t, l.FixedWindow(), r)
				require.Equal(t, want, *peeked, "ask %d, peeked", i)
				got := weir.MustRun(t, l.FixedWindow(), r)
				require.Equal(t, want, *got, "ask %d", i)
			}
		})
	}
}

// Invalid calls count as invalid and as nothing else: no bucket, no hit, no denial.
func TestBadInputIsNotCounted(t *testing.T) {
	const year = 365 * 24 * 60 * 60 * 1000
	long := strings.Repeat("x", 1025)
	type row struct {
		name  string
		id    string
		scale int64
		limit int64
		err   error
	}
	rows := []row{
		{"an empty id", "", 1000, 1, weir.ErrID},
		{"an empty id at limit 0", "", 1000, 0, weir.ErrID},
		{"an empty id at scale 0", "", 0, 1, weir.ErrID},
		{"an id one byte over 1 KiB", long, 1000, 1, weir.ErrID},
		{"an id of 1 MiB", strings.Repeat("x", 1<<20), 1000, 1, weir.ErrID},
		{"a long id at limit 0", long, 1000, 0, weir.ErrID},
		{"scale 0", "id", 0, 1, weir.ErrScale},
		{"scale -1", "id", -1, 1, weir.ErrScale},
		{"scale -1000", "id", -1000, 1, weir.ErrScale},
		{"the least scale", "id", math.MinInt64, 1, weir.ErrScale},
		{"a scale over a year", "id", year + 1, 1, weir.ErrScale},
		{"a scale of two years", "id", 2 * year, 1, weir.ErrScale},
		{"a scale that has a strategy's bits", "id", 1<<40 | 1000, 1, weir.ErrScale},
		{"the largest scale", "id", math.MaxInt64, 1, weir.ErrScale},
		{"scale 0 at limit 0", "id", 0, 0, weir.ErrScale},
		{"limit -1", "id", 1000, -1, weir.ErrLimit},
		{"limit -1 for a live id", "live", 1000, -1, weir.ErrLimit},
		{"the least limit", "id", 1000, math.MinInt64, weir.ErrLimit},
	}
	l, _ := newLimiter(t, weir.Config{})
	weir.MustCheck(t, l, "live", 1000, 5)
	before := l.Stats()
	calls := map[string]func(row) error{
		"CheckRate": func(r row) error { _, err := l.CheckRate(r.id, r.scale, r.limit); return err },
		"Verdict":   func(r row) error { _, err := l.Verdict(r.id, r.scale, r.limit); return err },
	}
	noLimit := map[string]func(row) error{
		"Inspect": func(r row) error { _, err := l.Inspect(r.id, r.scale); return err },
		"Reset":   func(r row) error { return l.Reset(r.id, r.scale) },
	}
	tried := uint64(0)
	try := func(name string, r row, call func(row) error) {
		t.Run(name+" of "+r.name, func(t *testing.T) {
			tried++
			assert.ErrorIs(t, call(r), r.err)
			want := before
			want.Invalid, want.Checks = tried, before.Checks+tried
			assert.Equal(t, want, l.Stats())
		})
	}
	for _, r := range rows {
		for name, call := range calls {
			try(name, r, call)
		}
		if r.err != weir.ErrLimit {
			for name, call := range noLimit {
				try(name, r, call)
			}
		}
	}
	require.GreaterOrEqual(t, tried, uint64(40))

	b := weir.MustInspect(t, l, "live", 1000)
	assert.EqualValues(t, 1, b.Count)
}

func TestBadRequestsLeaveNoTrace(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	f, ctx := l.FixedWindow(), t.Context()
	taken := &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: epoch.Add(time.Second)}
	tried := uint64(0)
	for _, c := range []struct {
		name string
		r    weir.Request
		err  error
	}{
		{"no key", weir.Request{Limit: 1, Duration: time.Second}, weir.ErrID},
		{"a key over 1 KiB", weir.Request{Key: strings.Repeat("k", 1025), Limit: 1,
			Duration: time.Second},
			weir.ErrID},
		{"no duration", weir.Request{Key: "k", Limit: 1}, weir.ErrScale},
		{"a nanosecond", weir.Request{Key: "k", Limit: 1, Duration: 1}, weir.ErrScale},
		{"a millisecond and one", weir.Request{Key: "k", Limit: 1, Duration: time.Millisecond + 1},
			weir.ErrScale},
		{"a negative duration", weir.Request{Key: "k", Limit: 1, Duration: -time.Second}, weir.ErrScale},
		{"the most negative duration", weir.Request{Key: "k", Limit: 1, Duration: math.MinInt64},
			weir.ErrScale},
		{"over a year", weir.Request{Key: "k", Limit: 1,
			Duration: 365*24*time.Hour + time.Millisecond}, weir.ErrScale},
		{"no duration at limit 0", weir.Request{Key: "k"}, weir.ErrScale},
	} {
		for name, call := range map[string]func() error{
			"Run":    func() error { res, err := f.Run(ctx, &c.r); assert.Nil(t, res); return err },
			"Peek":   func() error { _, err := ops.Peek(ctx, f, &c.r); return err },
			"Refund": func() error { return ops.Refund(ctx, f, &c.r, taken) },
			"Reset":  func() error { return ops.Reset(ctx, f, &c.r) },
			"Seed":   func() error { return ops.Seed(ctx, f, &c.r, taken) },
			"Charge": func() error { return ops.Charge(ctx, f, &c.r) },
		} {
			t.Run(name+" with "+c.name, func(t *testing.T) {
				tried++
				assert.ErrorIs(t, call(), c.err)
				assert.Equal(t, weir.Stats{Checks: tried, Invalid: tried, MaxBuckets: 1 << 20}, l.Stats())
			})
		}
	}
}

func TestErrorsContainTheOperands(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	_, err := l.CheckRate("id", -7, 1)
	assert.ErrorContains(t, err, "-7")
	_, err = l.CheckRate("id", 1, -8)
	assert.ErrorContains(t, err, "-8")
	_, err = l.CheckRate(strings.Repeat("x", 1025), 1, 1)
	assert.ErrorContains(t, err, "1025")
	assert.NotContains(t, err.Error(), "xxx", "an id may be anything: it stays out of logs")
}

func TestLimitZeroCreatesNoBucket(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	res := weir.MustCheck(t, l, "id", 1000, 0)
	assert.Equal(t, weir.Result{}, res)
	assert.Equal(t, weir.Stats{Checks: 1, Denied: 1, MaxBuckets: 1 << 20}, l.Stats())
}

func TestTableIsFullOfLiveBuckets(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{MaxBuckets: 2})
	for _, id := range []string{"a", "b"} {
		weir.MustCheck(t, l, id, 1000, 2)
	}
	for i := range 20 {
		_, err := l.CheckRate(fmt.Sprint("flood", i), 1000, 2)
		require.ErrorIs(t, err, weir.ErrFull)
	}
	res := weir.MustCheck(t, l, "a", 1000, 2)
	assert.EqualValues(t, 2, res.TotalRequests, "IDs with a bucket keep their count")
	res, err := l.CheckRate("new", 1000, 0)
	require.NoError(t, err, "limit 0 needs no bucket")
	assert.False(t, res.Allowed())
	assert.ErrorIs(t, ops.Charge(t.Context(), l.FixedWindow(), &weir.Request{Key: "new", Duration: time.Second}),
		weir.ErrFull)
	assert.EqualValues(t, 21, l.Stats().Full)
	clock.Advance(time.Second)
	_, err = l.CheckRate("new", 1000, 2)
	assert.NoError(t, err, "once a window has ended, within the Timeout")
	assert.LessOrEqual(t, l.Stats().Buckets, 2)
	assert.EqualValues(t, 2, l.Stats().Swept)
}

func TestClosed(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	weir.MustCheck(t, l, "id", 1000, 1)
	for range 3 {
		require.NoError(t, l.Close())
	}
	f, ctx := l.FixedWindow(), t.Context()
	r := &weir.Request{Key: "id", Limit: 1, Duration: time.Second}
	for name, call := range map[string]func() error{
		"CheckRate": func() error { _, err := l.CheckRate("id", 1000, 1); return err },
		"limit 0":   func() error { _, err := l.CheckRate("id", 1000, 0); return err },
		"Verdict": func() error {
			v, err := l.Verdict("id", 1000, 1)
			assert.False(t, v.OK)
			return err
		},
		"Inspect": func() error { _, err := l.Inspect("id", 1000); return err },
		"Reset":   func() error { return l.Reset("id", 1000) },
		"Run":     func() error { _, err := f.Run(ctx, r); return err },
		"Take":    func() error { _, err := f.Limit(1, time.Second).Take(ctx, "id", 1); return err },
		"Peek":    func() error { _, err := ops.Peek(ctx, f, r); return err },
		"Refund":  func() error { return ops.Refund(ctx, f, r, &weir.Result{State: weir.Allow}) },
		"Seed":    func() error { return ops.Seed(ctx, f, r, &weir.Result{}) },
		"Charge":  func() error { return ops.Charge(ctx, f, r) },
		"a reset": func() error { return ops.Reset(ctx, f, r) },
	} {
		assert.ErrorIs(t, call(), weir.ErrClosed, name)
	}
	s := l.Stats()
	assert.EqualValues(t, 12, s.Closed)
	assert.EqualValues(t, 1, s.Allowed)
	l.Sweep()
	for range l.Buckets() {
	}
}

// parked is a clock that blocks one reading after it was taken.
type parked struct {
	*weirtest.Clock
	skip   atomic.Int64 // number of readings before the one to block; negative blocks none
	held   chan struct{}
	resume chan struct{}
}

func park(start time.Time) *parked {
	p := &parked{Clock: weirtest.NewClock(start), held: make(chan struct{}),
		resume: make(chan struct{})}
	p.skip.Store(-1)
	return p
}

func (p *parked) now() time.Time {
	t := p.Clock.Now()
	if p.skip.Load() >= 0 && p.skip.Add(-1) == -1 {
		close(p.held)
		<-p.resume
	}
	return t
}

// A goroutine stalls between reading the clock and counting, while its window fills, ends and is
// swept.
func TestStalledGoroutineRevivesNoWindow(t *testing.T) {
	const limit = 3
	for _, c := range []struct {
		name   string
		known  bool // the ID has a bucket when the goroutine stalls
		sweep  bool
		total  uint64 // of the stalled call's Result
		window int64  // of the stalled call's Result
	}{
		{"its bucket was swept", true, true, 1, 5},
		{"its bucket was created and swept", false, true, 1, 5},
		{"its bucket has expired and is not yet swept", true, false, limit, 0},
		{"its bucket was created, has expired and is not yet swept", false, false, limit, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := park(epoch)
			l, _ := newLimiter(t, weir.Config{Now: clock.now, Timeout: time.Nanosecond})
			admitted := map[int64]int{}
			check := func() {
				res := weir.MustCheck(t, l, "id", 10, limit)
				if res.Allowed() {
					admitted[res.ExpiresAt.UnixMilli()/10-1]++
				}
			}
			if c.known {
				check()
			}
			clock.skip.Store(0)
			done := make(chan weir.Result)
			go func() {
				res, err := l.CheckRate("id", 10, limit)
				assert.NoError(t, err)
				done <- res
			}()
			<-clock.held
			for range 5 {
				for range limit + 1 {
					check()
				}
				clock.Advance(10*time.Millisecond + time.Nanosecond)
				if c.sweep {
					require.NotZero(t, l.Sweep())
				}
			}
			close(clock.resume)
			res := <-done
			assert.Equal(t, c.total, res.TotalRequests)
			assert.Equal(t, c.window, res.ExpiresAt.UnixMilli()/10-1)
			if res.Allowed() {
				admitted[c.window]++
			}
			for window, n := range admitted {
				assert.LessOrEqual(t, n, limit, "window %d", window)
			}
			assert.Equal(t, limit, admitted[0], "window 0 was filled")
		})
	}
}

// The real clock, its window edges and the janitor work in virtual time.
func TestWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.MustNew(t, weir.Config{})
		for range 3 {
			res := weir.MustCheck(t, l, "id", 1000, 1)
			require.True(t, res.Allowed())
			res = weir.MustCheck(t, l, "id", 1000, 1)
			require.False(t, res.Allowed())
			time.Sleep(res.RetryAfter(time.Now()) - 1)
			res = weir.MustCheck(t, l, "id", 1000, 1)
			require.False(t, res.Allowed(), "a nanosecond before ExpiresAt")
			time.Sleep(1)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Zero(t, l.Stats().Buckets)
	})
}

// A limiter created outside a bubble and used inside sees the time step back by decades, and still
// decides.
func TestClockMayGoBackByDecades(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	for _, year := range []int{2026, 2000, 1969, 1500, 2026, 2400, 2000} {
		clock.Set(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))
		res := weir.MustCheck(t, l, fmt.Sprint("in ", year), 1000, 5)
		assert.True(t, res.Allowed())
		l.Sweep()
	}
}

func TestTimeoutBelowTheScaleLosesNoLiveCount(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{Timeout: time.Nanosecond})
	weir.MustCheck(t, l, "id", 3_600_000, 1)
	for range 59 {
		clock.Advance(time.Minute)
		require.Zero(t, l.Sweep())
		res := weir.MustCheck(t, l, "id", 3_600_000, 1)
		require.False(t, res.Allowed())
	}
	clock.Advance(time.Minute)
	assert.Zero(t, l.Sweep(), "the Timeout starts at the end of the window")
	clock.Advance(time.Nanosecond)
	assert.Equal(t, 1, l.Sweep())
}

// Now is user code and may call the limiter that calls it.
func TestNoLockIsHeldAcrossNow(t *testing.T) {
	var l *weir.Limiter
	var inside atomic.Bool
	clock := weirtest.NewClock(epoch)
	l, _ = newLimiter(t, weir.Config{MaxBuckets: 4, Timeout: time.Nanosecond, Now: func() time.Time {
		if l != nil && inside.CompareAndSwap(false, true) {
			defer inside.Store(false)
			if _, err := l.CheckRate("inner", 10, 1); err != nil && !errors.Is(err, weir.ErrFull) {
				t.Error(err)
			}
			l.Sweep()
			l.Reset("inner", 10)
			l.Stats()
		}
		return clock.Now()
	}})
	for i := range 50 {
		weir.MustCheck(t, l, "outer", 10, 1)
		l.CheckRate(fmt.Sprint(i), 10, 1) // reclaims when full
		clock.Advance(time.Millisecond)
	}
}

// Scales whose windows share a place in the cache count apart.
func TestScalesThatShareAPlaceCountApart(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{SweepEvery: time.Hour})
	a, b := weir.SharingScales(l)
	for range 3 {
		clock.Advance(time.Duration(b * msec))
		for hit := range int64(3) {
			for _, scale := range []int64{a, b} {
				r := weir.MustCheck(t, l, "id", scale, 2)
				require.Equal(t, hit < 2, r.Allowed(), "hit %d, scale %d", hit, scale)
				require.EqualValues(t, min(hit+1, 2), r.TotalRequests)
			}
		}
	}
}

// A clock that goes back finds the window it goes back to, not the one that was current last.
func TestWindowOfAnEarlierReading(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{SweepEvery: time.Hour})
	for _, ms := range []int64{25, 15, 25, 15} {
		setMs(clock, ms)
		r := weir.MustCheck(t, l, "id", 10, 2)
		assert.True(t, r.Allowed(), "at %d ms", ms)
		assert.Equal(t, clock.Now().Add(5*time.Millisecond), r.ExpiresAt)
	}
}

// A caller finds the table full and reads the clock once more. After that reading another caller
// takes the room that there was, and everything else expires.
func TestErrFullHoldsAtOneInstant(t *testing.T) {
	var l *weir.Limiter
	var ms, readings int64
	check := func(id string) error {
		_, err := l.CheckRate(id, 10, 1)
		return err
	}
	l = weir.MustNew(t, weir.Config{MaxBuckets: 2, SweepEvery: time.Hour, Now: func() time.Time {
		now := time.UnixMilli(ms)
		if readings++; readings == 5 { // the second reading of "slow"
			assert.NoError(t, l.Reset("first", 10))
			ms = 10
			assert.NoError(t, check("next"))
		}
		return now
	}})
	require.NoError(t, check("first"))
	require.NoError(t, check("second"))
	require.NoError(t, check("slow"))
}

func TestClockIsReadOnce(t *testing.T) {
	readings := 0
	l, _ := newLimiter(t, weir.Config{Now: func() time.Time { readings++; return time.UnixMilli(0) }})
	check := func(limit int64) int {
		before := readings
		weir.MustCheck(t, l, "id", 1000, limit)
		return readings - before
	}
	assert.Equal(t, 1, check(2), "a new bucket")
	assert.Equal(t, 1, check(2), "admitted")
	assert.Equal(t, 1, check(2), "denied")
	assert.Equal(t, 1, check(0), "never to pass")
}

// original is a model of raterlimiter: one table of counters, keyed by window number and ID, that
// count every hit.
type original struct {
	table map[originalKey]*originalRow
}

type originalKey struct {
	window int64
	id     string
}

type originalRow struct{ counter, modified int64 }

// stamp rounds to the nearest millisecond.
func (o *original) stamp(now time.Time) int64 { return (now.UnixMicro() + 500) / 1000 }

func (o *original) checkRate(now time.Time, id string, scale, limit int64) string {
	key := originalKey{o.stamp(now) / scale, id}
	row := o.table[key]
	if row == nil {
		o.table[key] = &originalRow{1, o.stamp(now)}
		return "{ok, continue}"
	}
	row.counter++
	row.modified = o.stamp(now)
	if row.counter > limit {
		return fmt.Sprintf("{fail, %d}", limit)
	}
	return "{ok, continue}"
}

func (o *original) removeOld(now time.Time, timeout int64) {
	for key, row := range o.table {
		if row.modified < o.stamp(now)-timeout {
			delete(o.table, key)
		}
	}
}

// both is the limiter and the original with one clock.
type both struct {
	*weir.Limiter
	*weirtest.Clock
	original original
}

func newBoth(t *testing.T, start time.Time) *both {
	clock := weirtest.NewClock(start)
	limiter := weir.MustNew(t, weir.Config{Now: clock.Now, Timeout: time.Nanosecond})
	return &both{limiter, clock, original{map[originalKey]*originalRow{}}}
}

// verdicts returns the results of both for one call.
func (b *both) verdicts(t *testing.T, id string, scale, limit int64) (weirs, originals string) {
	v, err := b.Verdict(id, scale, limit)
	require.NoError(t, err)
	return v.String(), b.original.checkRate(b.Now(), id, scale, limit)
}

var y2012 = time.Date(2012, 5, 1, 12, 0, 0, 0, time.UTC)

// In random traces each ID has one scale and one limit, as in the original's use. The original
// sweeps after its timeout of 300 s, which no scale here exceeds; this limiter sweeps all the time.
func TestVerdictIsThatOfTheOriginal(t *testing.T) {
	scales := []int64{1, 7, 1000, 30_000, 300_000}
	limits := []int64{1, 2, 3, 500}
	for seed := range uint64(slow.N(20, 50, 2000)) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := newBoth(t, y2012.Add(time.Duration(rnd.Int64N(1e6))*time.Millisecond))
		var denied int
		for call := range 1000 {
			n := rnd.IntN(len(scales) * len(limits))
			scale, limit := scales[n/len(limits)], limits[n%len(limits)]
			weirs, originals := b.verdicts(t, fmt.Sprint(scale, "-", limit), scale, limit)
			require.Equal(t, originals, weirs, "seed %d, call %d: scale %d, limit %d", seed, call, scale,
				limit)
			if strings.HasPrefix(weirs, "{fail") {
				denied++
			}
			if rnd.IntN(3) == 0 {
				b.Advance(time.Duration(rnd.Int64N(1+rnd.Int64N(2000))) * time.Millisecond)
			}
			if rnd.IntN(50) == 0 {
				b.Sweep()
				b.original.removeOld(b.Now(), 300_000)
			}
		}
		require.NotZero(t, denied, "a trace without a denial shows nothing")
	}
}

func TestVerdictDiffersAtLimitZero(t *testing.T) {
	b := newBoth(t, y2012)
	weirs, originals := b.verdicts(t, "id", 1000, 0)
	assert.Equal(t, "{ok, continue}", originals, "the original lets the first hit of a window through")
	assert.Equal(t, "{fail, 0}", weirs)
	weirs, originals = b.verdicts(t, "id", 1000, 0)
	assert.Equal(t, originals, weirs, "the second is the same")
}

func TestVerdictDiffersAtScaleZero(t *testing.T) {
	b := newBoth(t, y2012)
	assert.Panics(t, func() { b.original.checkRate(b.Now(), "id", 0, 1) }, "the original crashes")
	for _, scale := range []int64{0, -1} {
		_, err := b.Verdict("id", scale, 1)
		assert.ErrorIs(t, err, weir.ErrScale, "scale %d", scale)
	}
}

func TestVerdictDiffersWhereScalesShareAWindowNumber(t *testing.T) {
	b := newBoth(t, y2012.Add(30*time.Minute)) // here both scales are in a window of the same number
	weirs, originals := b.verdicts(t, "id", 3_600_000, 1)
	require.Equal(t, "{ok, continue}", weirs)
	require.Equal(t, originals, weirs)
	weirs, originals = b.verdicts(t, "id", 3_600_001, 1)
	assert.Equal(t, "{fail, 1}", originals, "the original shares the counter")
	assert.Equal(t, "{ok, continue}", weirs)
}

func TestVerdictDiffersWhereTheOriginalLosesALiveCount(t *testing.T) {
	b := newBoth(t, time.Unix(1_336_003_200, 0)) // the start of a day
	const day, timeout = 86_400_000, 300_000
	b.verdicts(t, "id", day, 1)
	b.Advance(timeout*time.Millisecond + time.Millisecond)
	b.original.removeOld(b.Now(), timeout)
	b.Sweep()
	weirs, originals := b.verdicts(t, "id", day, 1)
	assert.Equal(t, "{ok, continue}", originals, "the original swept the counter in mid-window")
	assert.Equal(t, "{fail, 1}", weirs)
}

func TestVerdictDiffersByHalfAMillisecond(t *testing.T) {
	b := newBoth(t, time.Unix(1_336_003_200, 0))
	b.verdicts(t, "id", 1000, 1)
	b.Advance(time.Second - 500*time.Microsecond)
	weirs, originals := b.verdicts(t, "id", 1000, 1)
	assert.Equal(t, "{ok, continue}", originals, "the original rounds up into the next window")
	assert.Equal(t, "{fail, 1}", weirs)
}

func TestVerdictDiffersWhereALimitRises(t *testing.T) {
	b := newBoth(t, y2012)
	for range 3 {
		b.verdicts(t, "id", 60_000, 1)
	}
	weirs, originals := b.verdicts(t, "id", 60_000, 3)
	assert.Equal(t, "{fail, 3}", originals, "the original counted what it denied")
	assert.Equal(t, "{ok, continue}", weirs)
}
