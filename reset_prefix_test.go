package weir_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
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

func ExampleDo_resetPrefix() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	hour := limiter.FixedWindow()
	for _, key := range []string{"acme/alice", "acme/bob", "other/carol"} {
		if _, err := hour.Run(context.Background(),
			&weir.Request{Key: key, Limit: 100, Duration: time.Hour}); err != nil {
			panic(err)
		}
	}
	reset := &weir.Op{Verb: weir.OpResetPrefix, Request: weir.Request{Key: "acme/"}}
	err = weir.Do(context.Background(), hour, reset)
	fmt.Println(reset.Result.TotalRequests, err)
	// Output: 2 <nil>
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
