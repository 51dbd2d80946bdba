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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/rules"
)

func text(requests int) string {
	return in(fmt.Sprintf("{unit: year, requests_per_unit: %d}", requests))
}

// in returns rules with one limit.
func in(limit string) string {
	return "domain: d\ndescriptors: [{key: k, rate_limit: " + limit + "}]\n"
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

// look waits until a change is in force.
func look() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestChangesAreFound writes rules, a mistake, and nothing. A mistake is logged and counted once.
func TestChangesAreFound(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.yaml")
	write(t, name, text(1))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := load(t, dir, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, stop := context.WithCancel(t.Context())
		go r.Watch(ctx)
		after := func() Status {
			look()
			return r.Status()
		}
		assert.EqualValues(t, 1, after().Successes, "New loaded them")
		write(t, name, text(2))
		assert.EqualValues(t, 2, after().Successes)
		assert.EqualValues(t, 2, r.limit())
		write(t, name, "domain: [")
		after()
		s := after()
		assert.ErrorContains(t, s.Err, "error loading config file")
		assert.EqualValues(t, 1, s.Failures, "an unchanged file is refused once")
		require.Error(t, r.Reload())
		assert.EqualValues(t, 2, after().Failures, "but for a request")
		assert.EqualValues(t, 2, r.limit())
		assert.Equal(t, 1, strings.Count(log.String(), "rules refused"), "logged once for each cause")
		write(t, name, in("{unit: days}"))
		s = after()
		assert.ErrorContains(t, s.Err, "invalid rate limit unit 'days'", "another mistake")
		assert.EqualValues(t, 3, s.Failures)
		assert.Equal(t, 2, strings.Count(log.String(), "rules refused"))
		assert.Contains(t, log.String(), "invalid rate limit unit 'days'")
		stop()
		synctest.Wait()
	})
}

// TestRulesThatComeBackAreNoLongerRefused removes the file of the rules, and the directory, and
// puts the same back. The status must say again that the rules in force are those of the files.
func TestRulesThatComeBackAreNoLongerRefused(t *testing.T) {
	for _, whole := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "rules")
		name := filepath.Join(path, "r.yaml")
		require.NoError(t, os.Mkdir(path, 0o755))
		write(t, name, text(1))
		if !whole {
			path = name
		}
		synctest.Test(t, func(t *testing.T) {
			r := load(t, path, nil)
			ctx, stop := context.WithCancel(t.Context())
			go r.Watch(ctx)
			look()
			require.NoError(t, os.Rename(path, path+".away"))
			look()
			assert.ErrorContains(t, r.Status().Err, "no such file or directory")
			assert.EqualValues(t, 1, r.limit(), "the old rules stay")
			require.NoError(t, os.Rename(path+".away", path))
			look()
			assert.NoError(t, r.Status().Err)
			assert.EqualValues(t, 1, r.limit())
			stop()
			synctest.Wait()
		})
	}
}

// Rules that become empty are refused until they say so. A domain has to say so itself.
func TestRulesThatBecomeEmptyAreRefused(t *testing.T) {
	two := text(1) + "---\n" + strings.Replace(text(3), "domain: d", "domain: e", 1)
	const none = "has no limit any more, of 1; to have none, write \"descriptors: []\" in that domain"
	for _, row := range []struct {
		name, before string
		change       func(dir, name string) error
		want         string // of the error; "" if the change is accepted
	}{
		{"the last file is removed", text(1), func(_, name string) error { return os.Remove(name) }, none},
		{"the last file is renamed", text(1), func(dir, name string) error {
			return os.Rename(name, filepath.Join(dir, "r.yaml.old"))
		}, none},
		{"a file cut after its domain", text(1), cut("domain: d\n"), "domain 'd' " + none},
		{"a file cut after the key", text(1), cut("domain: d\ndescriptors:\n"), "domain 'd' " + none},
		{"a domain that has another limit is kept", text(1), cut(text(2)), ""},
		{"an empty domain is explicit", text(1), cut("domain: d\ndescriptors: []\n"), ""},
		{"a limit becomes unlimited", text(1), cut(in("{unlimited: true}")), none},
		{"one of two domains is cut", two, cut(text(1) + "---\ndomain: e\n"), "domain 'e' " + none},
		{"one of two domains is gone", two, cut(text(1)), "domain 'e' " + none},
		{"one of two is explicitly empty", two, cut(text(1) + "---\ndomain: e\ndescriptors: []\n"), ""},
		{"both are gone", two, cut("domain: f\n"), none + "\ndomain 'e'"},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "r.yaml")
		write(t, name, row.before)
		var log bytes.Buffer
		r := load(t, dir, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		before := r.Engine.Set().Len()
		require.NoError(t, row.change(dir, name))
		err := r.Reload()
		if row.want == "" {
			assert.NoError(t, err, row.name)
			continue
		}
		assert.ErrorContains(t, err, row.want, row.name)
		assert.Equal(t, before, r.Engine.Set().Len(), "%s: the old rules stay", row.name)
		require.Error(t, r.Reload(), "%s: also the second time", row.name)
		assert.Contains(t, log.String(), "level=WARN", row.name)
		assert.Contains(t, log.String(), fmt.Sprintf("limits_in_force=%d", before), row.name)
		write(t, name, row.before)
		assert.NoError(t, r.Reload(), row.name)
	}
}

// cut makes a file what is left of it.
func cut(left string) func(dir, name string) error {
	return func(_, name string) error { return os.WriteFile(name, []byte(left), 0o600) }
}

// Fewer limits than half are accepted with a warning that has both numbers.
func TestFewerLimitsAreLogged(t *testing.T) {
	name, two := filepath.Join(t.TempDir(), "r.yaml"), "\n- {key: l, rate_limit: {unit: year, requests_per_unit: 1}}"
	list := "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 1}}"
	write(t, name, list+two+strings.ReplaceAll(two, "l,", "m,"))
	var log bytes.Buffer
	r := load(t, name, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	write(t, name, list+two)
	require.NoError(t, r.Reload())
	assert.NotContains(t, log.String(), "WARN")
	write(t, name, "domain: d\ndescriptors: []\n")
	require.NoError(t, r.Reload())
	assert.Contains(t, log.String(), "level=WARN msg=\"rules loaded\"")
	assert.Contains(t, log.String(), "limits=0 limits_before=2")
}

// TestRulesFromElsewhere has no files.
func TestRulesFromElsewhere(t *testing.T) {
	var log strings.Builder
	r, err := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer r.Engine.Close()
	assert.Zero(t, r.Status())
	set, err := (&rules.Loader{}).Parse(rules.File{Name: "a", Data: []byte(text(1))})
	require.NoError(t, r.Accept(set, err))
	assert.EqualValues(t, 1, r.limit())
	assert.Error(t, r.Accept(nil, errors.New("no rules")))
	assert.EqualValues(t, 1, r.limit())
	assert.Error(t, r.Reload())
	assert.Contains(t, log.String(), "the rules come from a server", "SIGHUP has no other answer")
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

// TestConfigMap starts from a ConfigMap and follows its changes, for a
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
		c.Engine.Strategies = func(m rules.Method) (weir.Strategy, error) {
			if m.Algorithm != rules.FixedWindow {
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
		assert.Equal(t, rules.FixedWindow, rule.Limit.Algorithm,
			"the figures belong to the current rules")
	}
	write(t, name, text(3))
	assert.NoError(t, r.Reload())
	assert.EqualValues(t, 3, r.limit())
}

// What is counted of a caller is bounded, as is what is held of its last denials.
func TestDenialsCutLongKeys(t *testing.T) {
	d := NewDenials()
	long := strings.Repeat("k", 60<<10)
	d.Add(long, "GET /", "1/1d")
	top, all := d.Top(1)
	require.Len(t, top, 1)
	assert.Len(t, top[0].Key, traffic.LongestKey)
	assert.EqualValues(t, 1, all)
	var x cli.Explained
	d.Explain(&x, long)
	assert.EqualValues(t, 1, x.Denials)
	assert.Len(t, x.Last, 1)
}
