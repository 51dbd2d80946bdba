package redislimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// A reset of a prefix resets the keys that begin with it, in each Duration, and no others: not
// those of another strategy or store, nor those that a pattern or a brace would match.
func TestResetPrefix(t *testing.T) {
	server := redistest.Start(t)
	store := func(prefix string) *redislimit.Store {
		return open(t, server.Addr, redislimit.Config{Prefix: prefix})
	}
	own, other := store(""), store("weir:other*:")
	run := func(s weir.Strategy, key string, d time.Duration) bool {
		res := mustRun(t, s, &weir.Request{Key: key, Limit: 1, Duration: d})
		return res.Allowed()
	}
	const many = 2500 // SCAN takes several calls
	for n := range many {
		run(own.FixedWindow(), fmt.Sprint("many", n), time.Hour)
	}
	for prefix, rest := range map[string][2]string{
		"a*":        {"a*1", "ab"},
		"[ab]":      {"[ab]", "a"},
		"a?":        {"a?", "abc"},
		`a\`:        {`a\b`, "ab"},
		"c}:{d":     {"c}:{d", "c"},
		"d":         {"d}:reset", "x:{d"},
		"50%":       {"50%", "50"},
		"\xff":      {"\xff\xfe", "\xfe"},
		"none}":     {"none}", "none"},
		"e:{e}:end": {"e:{e}:end", "e"},
	} {
		for name, of := range map[string]func(*redislimit.Store) weir.Strategy{
			"FixedWindow": func(s *redislimit.Store) weir.Strategy { return s.FixedWindow() },
			"TokenBucket": func(s *redislimit.Store) weir.Strategy { return s.TokenBucket(0) },
			"SlidingLog":  func(s *redislimit.Store) weir.Strategy { return s.SlidingLog() },
		} {
			s := of(own)
			in, out := rest[0], rest[1]
			for _, key := range []string{in, out} {
				run(s, key, time.Hour)
				run(s, key, 2*time.Hour)
				run(own.SlidingWindow(), key, time.Hour)
				run(of(other), key, time.Hour)
			}
			seen, done := 0, 0
			n, err := ops.ResetPrefix(t.Context(), s, prefix, func(s, r int) {
				seen, done = s, r
			})
			require.NoError(t, err)
			assert.Equal(t, [2]int{2, 2}, [2]int{n, done}, "%s, %q", name, prefix)
			assert.GreaterOrEqual(t, seen, many, "%s, %q", name, prefix)
			assert.True(t, run(s, in, time.Hour) && run(s, in, 2*time.Hour), "%s, %q", name, prefix)
			assert.False(t, run(s, out, time.Hour) || run(s, out, 2*time.Hour), "%s, %q", name, prefix)
			for _, key := range []string{in, out} {
				assert.False(t, run(own.SlidingWindow(), key, time.Hour) || run(of(other), key, time.Hour),
					name)
			}
		}
	}
	n, err := ops.ResetPrefix(t.Context(), own.FixedWindow(), "many", nil)
	require.NoError(t, err)
	assert.Equal(t, many, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ops.ResetPrefix(ctx, own.FixedWindow(), "", nil)
	assert.ErrorIs(t, err, context.Canceled)
}

// What a Reset of a prefix has reset is not given back by a Return of before.
func TestReturnAfterResetPrefixGivesNothingBack(t *testing.T) {
	store := open(t, redistest.Start(t).Addr, redislimit.Config{})
	s, r := store.FixedWindow(), &weir.Request{Key: "a", Limit: 2, Duration: 24 * time.Hour, Cost: 2}
	_, giveBack, err := ops.Admit(t.Context(), s, r)
	require.NoError(t, err)
	_, err = ops.ResetPrefix(t.Context(), s, "", nil)
	require.NoError(t, err)
	mustRun(t, s, r)
	require.NoError(t, giveBack(t.Context(), 2))
	res := mustRun(t, s, r)
	assert.False(t, res.Allowed())
}

func TestResetPrefixOnACluster(t *testing.T) {
	slow.Test(t)
	store := storeOn(t, dialCluster(t, redistest.StartCluster(t)),
		redislimit.Config{Timeout: generous})
	for n := range 300 {
		_, err := store.FixedWindow().Run(t.Context(),
			&weir.Request{Key: fmt.Sprint(n), Limit: 1, Duration: 24 * time.Hour})
		require.NoError(t, err)
	}
	n, err := ops.ResetPrefix(t.Context(), store.FixedWindow(), "1", nil)
	require.NoError(t, err)
	assert.Equal(t, 111, n)
	n, err = ops.ResetPrefix(t.Context(), store.FixedWindow(), "", nil)
	require.NoError(t, err)
	assert.Equal(t, 189, n)
}
