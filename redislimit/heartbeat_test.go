package redislimit_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

func beating(
	t *testing.T, store *redislimit.Store, cfg redislimit.HeartbeatConfig,
) *redislimit.Heartbeat {
	h, err := store.Heartbeat(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func awaitInstances(t *testing.T, h *redislimit.Heartbeat, want int) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the number of instances", func() bool {
		return h.Instances() == want
	})
}

// Instances of one fleet are counted, from the first beat until they leave or stop, and no number
// falls at once.
func TestHeartbeatCountsInstances(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	cfg := redislimit.HeartbeatConfig{Every: 20 * time.Millisecond}
	store := open(t, server.Addr, redislimit.Config{})
	first := beating(t, store, cfg)
	awaitInstances(t, first, 1)
	second := beating(t, store, cfg)
	third := beating(t, open(t, proxy.Addr, redislimit.Config{}), cfg)
	other := beating(t, store,
		redislimit.HeartbeatConfig{Every: 20 * time.Millisecond, Fleet: "other"})
	for _, h := range []*redislimit.Heartbeat{first, second, third} {
		awaitInstances(t, h, 3)
	}
	awaitInstances(t, other, 1)

	require.NoError(t, second.Close())
	awaitInstances(t, first, 2)
	awaitInstances(t, third, 2)
	proxy.Refuse(true) // the third stops without leaving
	awaitInstances(t, first, 1)
	assert.Equal(t, 2, third.Instances(), "it keeps the last number")
	proxy.Refuse(false)
	awaitInstances(t, first, 2)
	life := pttl(t, server.Client(), "weir:instances:{}")
	assert.Positive(t, life, "a fleet that ends leaves nothing")
}

// In an outage the last number holds for Keep, and then Config.Instances does.
func TestHeartbeatInAnOutage(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	var failed atomic.Int64
	cfg := redislimit.HeartbeatConfig{Every: 10 * time.Millisecond, OnError: func(error) {
		failed.Add(1)
	}}
	long := beating(t, store, cfg)
	cfg.Keep = 300 * time.Millisecond
	short := beating(t, store, cfg)
	awaitInstances(t, long, 2)
	awaitInstances(t, short, 2)
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	f, err := fallback.New(store.FixedWindow(), l.FixedWindow(), fallback.Config{Instances: 5,
		InstancesFunc: short.Instances, Timeout: generous})
	require.NoError(t, err)
	server.Kill()
	awaitInstances(t, short, 0)
	assert.Equal(t, 2, long.Instances())
	assert.Positive(t, failed.Load())
	admitted := 0
	for range 100 {
		op := ops.Do(t.Context(), f, weir.Op{Request: weir.Request{Key: "a", Limit: 100,
			Duration: 365 * 24 * time.Hour}})
		require.NoError(t, op.Err)
		require.Equal(t, weir.FromLocal, op.Source)
		admitted += int(op.Result.State)
	}
	assert.Equal(t, 20, admitted, "a fifth of the limit")
	assert.Error(t, long.Close(), "it cannot report that it leaves")
}

func TestHeartbeatConfig(t *testing.T) {
	store := open(t, "127.0.0.1:1", redislimit.Config{})
	for _, cfg := range []redislimit.HeartbeatConfig{{Fleet: "{"}, {Every: -1}, {Keep: -1}} {
		_, err := store.Heartbeat(cfg)
		assert.ErrorIs(t, err, redislimit.ErrConfig)
	}
	assert.Zero(t, beating(t, store, redislimit.HeartbeatConfig{}).Instances(), "none is known")
}

// A number does not fall at once, as that of a Redis that has lost its instances would, and rises
// at once.
func TestHeartbeatFallsLate(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.Addr, redislimit.Config{})
	rarely := redislimit.HeartbeatConfig{Every: time.Hour}
	h := beating(t, store, rarely)
	awaitInstances(t, h, 1)
	for want := range 3 {
		beating(t, store, rarely)
		redistest.Eventually(t, 20*time.Second, "a higher number", func() bool {
			require.NoError(t, redislimit.Beat(t.Context(), h))
			return h.Instances() == want+2
		})
	}
	server.Do("flushall")
	require.NoError(t, redislimit.Beat(t.Context(), h))
	assert.Equal(t, 4, h.Instances())
}
