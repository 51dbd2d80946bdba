package weir_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// An Outcome says for people what was decided, by String and in JSON.
func TestOutcomesAreForPeople(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	clock.Set(time.Unix(60, 0).UTC())
	window := l.FixedWindow().Limit(3, time.Minute).Named("api \x01")
	bucket := l.TokenBucket(2).Limit(10, time.Second)
	tiers := l.Tiers(weir.Tier{Limit: 1, Duration: time.Second}, weir.Tier{Limit: 5, Duration: time.Minute})
	jobs := l.InFlight().Limit(1)
	_, err := jobs.Hold(t.Context(), "k")
	require.NoError(t, err)
	take := func(s interface {
		Take(ctx context.Context, key string, cost uint64) (weir.Outcome, error)
	}, cost uint64) weir.Outcome {
		out, err := s.Take(t.Context(), "k", cost)
		require.NoError(t, err)
		return out
	}
	busy, err := jobs.Peek(t.Context(), "k")
	require.NoError(t, err)
	for _, tt := range []struct {
		out        weir.Outcome
		text, json string
		never      bool
	}{
		{take(window, 1), "allowed, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":true,"left":2,"limit":3,"wait":"0s","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, false},
		{take(window, 3), "denied for 1m, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":false,"left":2,"limit":3,"wait":"1m","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, false},
		{take(window, 4), "denied for good, 2 of 3 left: api \x01: fixed window, 3 in 1m",
			`{"allowed":false,"left":2,"limit":3,"wait":"never","full_at":"1970-01-01T00:02:00Z","by":"api \u0001: fixed window, 3 in 1m"}`, true},
		{take(bucket, 2), "allowed, 0 of 2 left: token bucket, 10 in 1s",
			`{"allowed":true,"left":0,"limit":2,"wait":"0s","full_at":"1970-01-01T00:01:00.2Z","by":"token bucket, 10 in 1s"}`, false},
		{take(bucket, 1), "denied for 100ms, 0 of 2 left: token bucket, 10 in 1s",
			`{"allowed":false,"left":0,"limit":2,"wait":"100ms","full_at":"1970-01-01T00:01:00.2Z","by":"token bucket, 10 in 1s"}`, false},
		{take(tiers.Limit(), 1), "allowed, 0 of 1 left: tiers, 1 in 1s", "", false},
		{take(limits.All(l.SlidingWindow().Limit(9, time.Minute), l.SlidingLog().Limit(0, time.Minute)), 1),
			"denied for good, 0 of 0 left: sliding log, 0 in 1m", "", true},
		{busy, "denied until one is released, 0 of 1 left: in flight, 1 at a time",
			`{"allowed":false,"left":0,"limit":1,"wait":"until one is released","by":"in flight, 1 at a time"}`, false},
		{weir.Outcome{}, "denied for 0s, 0 of 0 left", `{"allowed":false,"left":0,"limit":0,"wait":"0s"}`, false},
	} {
		assert.Equal(t, tt.text, tt.out.String())
		assert.Equal(t, tt.never, tt.out.Never(), tt.text)
		got, err := json.Marshal(tt.out)
		require.NoError(t, err)
		if tt.json != "" {
			assert.Equal(t, tt.json, string(got), tt.text)
		}
	}
}

// The Limit of an Outcome is what its count is held against, and never 0 where something may pass.
func TestOutcomesHaveALimit(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	for name, s := range map[string]*weir.Limit{
		"fixed window":   l.FixedWindow().Limit(7, time.Minute),
		"calendar":       l.Calendar(weir.Day, time.UTC).Limit(7),
		"sliding window": l.SlidingWindow().Limit(7, time.Minute),
		"log":            l.SlidingLog().Limit(7, time.Minute),
		"list":           l.List().Limit(7, time.Minute),
		"counter":        l.Counter().Limit(7, time.Minute),
		"token bucket":   l.TokenBucket(7).Limit(20, time.Minute),
	} {
		for _, cost := range []uint64{1, 6, 1, 8} {
			taken, err := s.Take(t.Context(), "k", cost)
			require.NoError(t, err)
			assert.EqualValues(t, 7, taken.Limit, name)
			looked, err := s.Peek(t.Context(), "k")
			require.NoError(t, err)
			assert.EqualValues(t, 7, looked.Limit, name)
		}
	}
}
