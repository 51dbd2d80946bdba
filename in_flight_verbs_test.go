package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/limits"
)

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
