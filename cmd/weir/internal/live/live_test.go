package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/rules"
)

func text(requests int) string {
	return fmt.Sprintf("domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]\n",
		requests)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}

// limit returns the current limit.
func (r *Rules) limit() uint32 {
	return r.Engine.Set().Match("d", []rules.Entry{{Key: "k", Value: "v"}}).Limit.Requests
}

func load(t *testing.T, dir string, change func(*Config)) *Rules {
	t.Helper()
	cfg := Config{Paths: []string{dir}}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Engine.Close()) })
	return r
}

// TestEventsThatFollowEachOtherAreOneChange writes a file five times, 50 ms apart. It must be read
// once, at the end.
func TestEventsThatFollowEachOtherAreOneChange(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.yaml")
	write(t, name, text(1))
	synctest.Test(t, func(t *testing.T) {
		r := load(t, dir, nil)
		ctx, stop := context.WithCancel(t.Context())
		events, observed := make(chan fsnotify.Event), 0
		go r.follow(ctx, events, nil, func() { observed++ })
		synctest.Wait()
		for i := range 5 {
			write(t, name, strings.Repeat("x", i)+": [") // half written
			events <- fsnotify.Event{Name: name}
			time.Sleep(debounce / 2)
		}
		write(t, name, text(2))
		time.Sleep(debounce)
		synctest.Wait()
		s := r.Status()
		assert.Equal(t, []uint64{2, 0}, []uint64{s.Successes, s.Failures})
		assert.EqualValues(t, 2, r.limit())
		assert.Equal(t, 2, observed)
		stop()
	})
}

// TestChangesWithoutAnEventAreFound checks the polling. An unchanged file is not loaded again, and
// a mistake is logged once.
func TestChangesWithoutAnEventAreFound(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.yaml")
	write(t, name, text(1))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := load(t, dir, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, stop := context.WithCancel(t.Context())
		failures := make(chan error)
		go r.follow(ctx, nil, failures, func() {})
		synctest.Wait()
		failures <- errors.New("overflow")
		after := func() Status {
			time.Sleep(pollEvery)
			synctest.Wait()
			return r.Status()
		}
		assert.EqualValues(t, 1, after().Successes)
		write(t, name, text(2))
		assert.EqualValues(t, 2, after().Successes)
		assert.EqualValues(t, 2, r.limit())
		write(t, name, "domain: [")
		after()
		s := after()
		assert.ErrorContains(t, s.Err, "error loading config file")
		assert.EqualValues(t, 1, s.Failures, "an unchanged file is read once")
		require.NoError(t, os.Remove(name))
		require.NoError(t, os.Remove(dir))
		after()
		s = after()
		assert.EqualValues(t, 3, s.Failures)
		assert.EqualValues(t, 2, r.limit(), "the old rules stay when the directory is removed")
		assert.Equal(t, 2, strings.Count(log.String(), "rules refused"), "logged once for each cause")
		stop()
		synctest.Wait()
		assert.Contains(t, log.String(), "file events were lost")
	})
}

// configMap writes rules to dir as Kubernetes mounts a ConfigMap: the files are in their own
// directory, with links to them through ..data, which is replaced.
func configMap(t *testing.T, dir, version, text string) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
	write(t, filepath.Join(dir, version, "rules.yaml"), text)
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old == "" {
		require.NoError(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
		return
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, old)))
}

// TestConfigMap starts from a ConfigMap and follows its changes by file system events, for a
// directory and for a link to it.
func TestConfigMap(t *testing.T) {
	for _, linked := range []bool{false, true} {
		dir := t.TempDir()
		configMap(t, dir, "..2026_01_01", text(1))
		path := dir
		if linked {
			path = filepath.Join(t.TempDir(), "rules")
			require.NoError(t, os.Symlink(dir, path))
		}
		r := load(t, path, nil)
		assert.Equal(t, 1, r.Status().Rules, "the file is read once, although two paths lead to it")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Watch(ctx)
		}()
		for i := range uint32(3) {
			configMap(t, dir, fmt.Sprint("..2026_02_0", i), text(int(10+i)))
			require.Eventually(t, func() bool { return r.limit() == 10+i }, time.Minute, time.Millisecond)
		}
		assert.Zero(t, r.Status().Failures)
		stop()
		<-done
	}
}

// TestARefusedSetIsNotInForce loads a valid set that Check refuses, and one for which the
// Strategies fail.
func TestARefusedSetIsNotInForce(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.yaml")
	write(t, name, text(1))
	var limiter weir.Limiter
	r := load(t, dir, func(c *Config) {
		c.Check = func(s *rules.Set) error {
			if !s.Has("d") {
				return errors.New("no domain d")
			}
			return nil
		}
		c.Engine.Strategies = func(a rules.Algorithm, _ uint64) (weir.Strategy, error) {
			if a != rules.FixedWindow {
				return nil, errors.New("no such strategy")
			}
			return limiter.FixedWindow(), nil
		}
	})
	write(t, name, "domain: e\n")
	assert.EqualError(t, r.Reload(), "no domain d")
	write(t, name, "domain: d\ndescriptors: [{key: k, metadata: {weir: {algorithm: sliding_log}}, "+
		"rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	assert.ErrorContains(t, r.Reload(), "no such strategy")
	assert.EqualValues(t, 1, r.limit())
	for rule := range r.Figures.All() {
		assert.Equal(t, rules.FixedWindow, rule.Limit.Algorithm, "the figures belong to the current rules")
	}
	write(t, name, text(3))
	assert.NoError(t, r.Reload())
	assert.EqualValues(t, 3, r.limit())
}

// TestHybridDividesTheBurst makes strategies for one of three processes.
func TestHybridDividesTheBurst(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	got := map[string]uint64{}
	source := func(side string) rules.Strategies {
		return func(a rules.Algorithm, burst uint64) (weir.Strategy, error) {
			got[side] = burst
			return rules.StrategiesOf(limiter)(a, burst)
		}
	}
	var names []string
	hybrid := Hybrid(source("remote"), source("local"), fallback.Config{Instances: 3},
		slog.New(slog.DiscardHandler),
		func(name string, _ *fallback.Fallback) { names = append(names, name) })
	for burst, part := range map[uint64]uint64{0: 0, 1: 1, 3: 1, 4: 2, 100: 34} {
		_, err := hybrid(rules.TokenBucket, burst)
		require.NoError(t, err)
		assert.Equal(t, map[string]uint64{"remote": burst, "local": part}, got)
	}
	assert.Contains(t, names, "token bucket, burst 4")
	assert.Contains(t, names, "token bucket")
}
