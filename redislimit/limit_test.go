package redislimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// hit takes one hit, of work in flight a lease, since only its Hold takes a place.
func hit(ctx context.Context, m *weir.Limit, key string) (weir.Result, error) {
	out, err := m.Take(ctx, key, 1)
	if !errors.Is(err, errors.ErrUnsupported) {
		return out.Result, err
	}
	res, err := weir.CounterOf(m).Run(ctx, &weir.Request{Key: key})
	if err != nil {
		return weir.Result{}, err
	}
	return *res, nil
}

// limitsOf returns limits that all differ, by what they are.
func limitsOf(t *testing.T, s *redislimit.Store) map[string]*weir.Limit {
	tiers := func(first, second uint64) *redislimit.Tiers {
		all := s.Tiers(weir.Tier{Limit: second, Duration: time.Minute},
			weir.Tier{Limit: first, Duration: time.Second})
		return all
	}
	fine := tiers(5, 9).Resolution(100 * time.Millisecond)
	return map[string]*weir.Limit{
		"sliding window, 5 in a minute":    s.SlidingWindow().Limit(5, time.Minute),
		"sliding window, 6 in a minute":    s.SlidingWindow().Limit(6, time.Minute),
		"sliding window, 5 in an hour":     s.SlidingWindow().Limit(5, time.Hour),
		"sliding window with a name":       s.SlidingWindow().Limit(5, time.Minute).Named("logins"),
		"sliding window with another name": s.SlidingWindow().Limit(5, time.Minute).Named("uploads"),
		"fixed window":                     s.FixedWindow().Limit(5, time.Minute),
		"counter":                          s.Counter().Limit(5, time.Minute),
		"sliding log":                      s.SlidingLog().Limit(5, time.Minute),
		"list":                             s.List().Limit(5, time.Minute),
		"token bucket":                     s.TokenBucket(0).Limit(5, time.Minute),
		"token bucket, burst of 7":         s.TokenBucket(7).Limit(5, time.Minute),
		"token bucket, burst of 8":         s.TokenBucket(8).Limit(5, time.Minute),
		"5 in a month":                     s.Calendar(weir.Month, nil).Limit(5),
		"6 in a month":                     s.Calendar(weir.Month, nil).Limit(6),
		"5 in a day":                       s.Calendar(weir.Day, nil).Limit(5),
		"in flight, 5":                     s.InFlight().Limit(5),
		"in flight, 6":                     s.InFlight().Limit(6),
		"tiers, 5 in 1 s":                  tiers(5, 9).Limit(),
		"tiers, 6 in 1 s":                  tiers(6, 9).Limit(),
		"tiers with a name":                tiers(5, 9).Limit().Named("logins"),
		"tiers, 5 in 1 s, finer":           fine.Limit(),
	}
}

// Equal limits count together, in whichever process, and limits that differ count separately, also
// from the bare strategies.
func TestLimitsCountTogetherIfAndOnlyIfTheyAreEqual(t *testing.T) {
	server, clock := redistest.Start(t), weirtest.NewClock(time.Unix(1_700_000_000, 0))
	cfg := redislimit.Config{Now: clock.Now}
	one, other := open(t, server.Addr, cfg), open(t, server.Addr, cfg)
	take := func(m *weir.Limit, want uint64, what string) {
		t.Helper()
		res, err := hit(t.Context(), m, "ann")
		require.NoError(t, err, what)
		assert.True(t, res.Allowed(), what)
		assert.Equal(t, want, res.TotalRequests, what)
	}
	for name, s := range everyStrategy(t, one, fivePerMinute) {
		_, err := s.Run(t.Context(), &weir.Request{Key: "ann", Limit: 5, Duration: time.Minute})
		require.NoError(t, err, name)
	}
	for what, m := range limitsOf(t, one) {
		take(m, 1, what)
	}
	for what, m := range limitsOf(t, other) {
		take(m, 2, what)
	}
	wrapped, err := weir.NewLimit(near.NewDenials(one.TokenBucket(8), near.DenialsConfig{Now: clock.Now}), 5,
		time.Minute)
	require.NoError(t, err)
	take(wrapped, 3, "a wrapper counts as what it wraps")
	take(one.SlidingWindow().Limit(9, time.Minute).Named("logins"), 3, "a name keeps its counts")
	require.NoError(t, wrapped.Reset(t.Context(), "ann"))
	take(wrapped, 1, "it was reset")
	take(one.TokenBucket(7).Limit(5, time.Minute), 3, "another one was reset")
}

// What was used of a token bucket with a name is kept when its Duration changes, also behind a
// fallback and in near; without a name, and in windows, another Duration counts anew.
func TestNamedBucketsKeepTheirCountsWhenTheDurationChanges(t *testing.T) {
	server, clock := redistest.Start(t), weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, server.Addr, redislimit.Config{Now: clock.Now})
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer l.Close()
	hybrid, err := fallback.New(store.TokenBucket(60), l.TokenBucket(60),
		fallback.Config{Timeout: generous, Instances: 1, Now: clock.Now})
	require.NoError(t, err)
	for _, row := range []struct {
		name, key string
		s         weir.Strategy
		kept      bool
	}{
		{"t", "a", l.TokenBucket(60), true}, {"t", "b", store.TokenBucket(60), true}, {"t", "c", hybrid, true},
		{"t", "d", near.NewDenials(store.TokenBucket(60), near.DenialsConfig{Now: clock.Now}), true},
		{"", "e", store.TokenBucket(60), false}, {"t", "f", store.FixedWindow(), false},
		{"t", "g", store.SlidingWindow(), false}, {"t", "h", store.Counter(), false},
	} {
		limit := func(n uint64, d time.Duration) *weir.Limit {
			m, err := weir.NewLimit(row.s, n, d)
			require.NoError(t, err)
			if row.name != "" {
				m = m.Named(row.name)
			}
			return m
		}
		minutes, hours := limit(60, time.Minute), limit(3600, time.Hour)
		out, err := minutes.Take(t.Context(), row.key, 60)
		require.NoError(t, err)
		require.True(t, out.Allowed(), row.key)
		out, err = hours.Take(t.Context(), row.key, 60)
		require.NoError(t, err)
		assert.Equal(t, !row.kept, out.Allowed(), "%s: the same rate", row.key)
		if !row.kept {
			continue
		}
		assert.Equal(t, time.Minute, out.ExpiresAt.Sub(clock.Now()), row.key)
		out, err = limit(60, time.Hour).Peek(t.Context(), row.key)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, out.ExpiresAt.Sub(clock.Now()), "%s: one in a minute, none is left", row.key)
		require.NoError(t, hours.Reset(t.Context(), row.key))
		assert.True(t, minutes.Allow(row.key), row.key)
	}
}

// unreachable is a strategy on Redis that does not answer while it is down.
type unreachable struct {
	*redislimit.Strategy
	down bool
}

func (s *unreachable) About() *weir.About { return s.Strategy.About().By(s) }

func (s *unreachable) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *unreachable) Do(ctx context.Context, ops []*weir.Op) {
	if !s.down {
		s.Strategy.Do(ctx, ops)
		return
	}
	for _, op := range ops {
		op.Err = redislimit.ErrTimeout
	}
}

// What a fallback admitted of a bucket with a name in an outage is charged when its Duration has
// changed meanwhile, and reset with its prefix.
func TestDebtsOfANamedBucketOutlastItsDuration(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 0))
	store := open(t, redistest.Start(t).Addr, redislimit.Config{Now: clock.Now})
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer l.Close()
	for _, reset := range []bool{false, true} {
		primary := &unreachable{Strategy: store.TokenBucket(60)}
		hybrid, err := fallback.New(primary, l.TokenBucket(60),
			fallback.Config{Timeout: generous, Instances: 1, Now: clock.Now})
		require.NoError(t, err)
		minutes, err := weir.NewLimit(hybrid, 60, time.Minute)
		require.NoError(t, err)
		hours, err := weir.NewLimit(hybrid, 3600, time.Hour)
		require.NoError(t, err)
		primary.down = true
		out, err := minutes.Named("debts").Take(t.Context(), "a", 30)
		require.NoError(t, err)
		require.True(t, out.Allowed())
		primary.down = false
		if reset {
			_, err = ops.ResetPrefix(t.Context(), hybrid, weir.JoinKey("debts"), nil)
			require.NoError(t, err)
		}
		out, err = hours.Named("debts").Take(t.Context(), "a", 40)
		require.NoError(t, err)
		assert.Equal(t, reset, out.Allowed())
	}
}

// Keys of up to 1024 bytes count apart under every name, by every strategy, alone, behind a
// fallback and in near.
func TestLimitsTakeKeysOf1024BytesUnderEveryName(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	apart := open(t, server.Addr, redislimit.Config{Prefix: "apart:"})
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	all := map[string]weir.Strategy{}
	for name, s := range everyStrategy(t, store, fivePerMinute) {
		all[name] = s
	}
	all["near"] = near.NewLeases(near.NewDenials(apart.FixedWindow(), near.DenialsConfig{}), near.LeaseConfig{})
	all["fallback"], err = fallback.New(apart.SlidingLog(), l.SlidingLog(),
		fallback.Config{Timeout: generous, Instances: 1})
	require.NoError(t, err)
	var tiers []weir.Tier
	for i := range 200 { // whose numbers alone take over 1024 bytes
		tiers = append(tiers, weir.Tier{Limit: 5, Duration: time.Duration(i+1) * time.Hour})
	}
	all["many tiers"] = store.Tiers(tiers...)
	long := func(n int, end string) string { return strings.Repeat("k", n-len(end)) + end }
	for what, s := range all {
		for _, name := range []string{"", "n", strings.Repeat("n", 256)} {
			n, d := uint64(5), 24*time.Hour
			if _, several := s.(*redislimit.Tiers); several {
				n, d = 0, 0
			}
			m, err := weir.NewLimit(s, n, d)
			require.NoError(t, err)
			if name != "" {
				m = m.Named(name)
			}
			for _, key := range []string{"k", long(750, "a"), long(763, "a"), long(764, "a"), long(1000, "a"),
				long(1024, "a"), long(1024, "b")} {
				res, err := hit(t.Context(), m, key)
				require.NoError(t, err, "%s of %d bytes, a key of %d", what, len(name), len(key))
				assert.EqualValues(t, 1, res.TotalRequests, "%s: %d bytes", what, len(key))
				out, err := m.Peek(t.Context(), key)
				require.NoError(t, err)
				assert.EqualValues(t, 1, out.TotalRequests, "%s: %d bytes", what, len(key))
				require.NoError(t, m.Reset(t.Context(), key))
				res, err = hit(t.Context(), m, key)
				require.NoError(t, err)
				assert.EqualValues(t, 1, res.TotalRequests, "%s: %d bytes, after a Reset", what, len(key))
			}
			_, err = hit(t.Context(), m, long(1025, "a"))
			assert.ErrorIs(t, err, weir.ErrID, what)
			assert.False(t, m.FailOpen().Allow(long(1025, "a")), what)
		}
	}
	name := strings.Repeat("r", 256)
	m := store.List().Limit(5, time.Hour).Named(name)
	require.True(t, m.Allow(long(1024, "a")))
	require.True(t, m.Allow("short"))
	n, err := ops.ResetPrefix(t.Context(), store.List(), weir.JoinKey(name), nil)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

// A limit with a name counts in the keys that a Policy of that name has left in a server: those
// that begin with the name as the first part of a joined key.
func TestLimitsCountInTheKeysOfTheirName(t *testing.T) {
	store := open(t, redistest.Start(t).Addr, redislimit.Config{})
	r := weir.Request{Key: weir.JoinKey("logins", "ann"), Limit: 5, Duration: time.Hour}
	_, err := store.SlidingLog().Run(t.Context(), &r)
	require.NoError(t, err)
	for _, m := range []*weir.Limit{
		store.SlidingLog().Limit(5, time.Hour).Named("logins"),
		store.SlidingLog().Limit(50, time.Hour).Named("logins"),
	} {
		out, err := m.Peek(t.Context(), "ann")
		require.NoError(t, err)
		assert.EqualValues(t, 1, out.TotalRequests)
	}
}

// A Limit on Redis does all that its strategy does.
func TestLimitsDoWhatTheirStrategiesDo(t *testing.T) {
	ctx, store := t.Context(), open(t, redistest.Start(t).Addr, redislimit.Config{})
	m := store.SlidingLog().Limit(3, time.Hour)
	out, err := m.Take(ctx, "ann", 2)
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.Left)
	assert.True(t, m.AllowBytes([]byte("ann")))
	assert.False(t, m.Allow("ann"))
	out, err = m.Peek(ctx, "ann")
	require.NoError(t, err)
	assert.False(t, out.Allowed())
	assert.Positive(t, out.Wait)
	assert.Same(t, m, out.By)

	jobs := store.InFlight().Limit(1)
	held, err := jobs.Hold(ctx, "ann")
	require.NoError(t, err)
	_, err = jobs.Hold(ctx, "ann")
	var denied *weir.DeniedError
	require.ErrorAs(t, err, &denied)
	require.NoError(t, held.Release(ctx))
	held, err = jobs.Hold(ctx, "ann")
	require.NoError(t, err)
	require.NoError(t, held.Release(ctx))

	two := limits.All(store.SlidingLog().Limit(9, time.Hour), store.TokenBucket(2).Limit(9, time.Hour))
	for _, want := range []bool{true, true, false} {
		assert.Equal(t, want, two.Allow("ann"))
	}
	out, err = two.Peek(ctx, "ann")
	require.NoError(t, err)
	assert.Equal(t, "token bucket, 9 in 1h", out.By.String())
}

func TestNumbersThatCanNeverBeRight(t *testing.T) {
	store := open(t, "127.0.0.1:1", redislimit.Config{})
	assert.PanicsWithValue(t, "weir: bad duration: 0s, want 1ms to 8760h",
		func() { store.SlidingLog().Limit(5, 0) })
	assert.Panics(t, func() { store.TokenBucket(1<<50).Limit(1, 365*24*time.Hour) })
	n, d := store.Calendar(weir.Day, nil).Limit(5).Numbers()
	assert.EqualValues(t, 5, n)
	assert.Equal(t, 24*time.Hour, d)
	_, d = store.InFlight().Limit(5).Numbers()
	assert.Equal(t, time.Minute, d)
}
