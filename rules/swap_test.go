package rules_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

// generations are the sets of rules that are swapped. In each set all rules have the same name, the
// limit of user is the same although another rule has it, and the limit of changing is 50 or 80.
var generations = []string{`
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 100, name: g0}}
  - {key: changing, rate_limit: {unit: year, requests_per_unit: 50, name: g0}}
`, `
domain: d
descriptors:
  - {key: more, value: 'x*', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: user, value: 'u*', rate_limit: {unit: year, requests_per_unit: 100, name: g1}}
  - {key: user, value: u3, rate_limit: {unit: year, requests_per_unit: 100, name: g1}}
  - {key: changing, rate_limit: {unit: year, requests_per_unit: 80, name: g1}}
`}

const broken = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: years}}\n"

// swapper is the engine under test, or a deliberately broken one.
type swapper struct {
	decide func(*rules.Request) (*rules.Response, error)
	swap   func(*rules.Set) error
}

// findings count the errors that a correct engine does not make.
type findings struct {
	mixed, overAdmitted, underAdmitted, errors int
}

// underSwaps makes requests from 64 goroutines while it swaps the rules 100 times, and reports the
// errors.
func underSwaps(t *testing.T, s swapper) findings {
	const asking, users, swaps = 64, 8, 100
	var admitted [users + 1]atomic.Int64
	var mixed, failed, asked atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	for i := range asking {
		group.Go(func() {
			for n := i; !stop.Load() || n < i+50; n++ {
				user := n % users
				resp, err := s.decide(&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
					{Entries: []rules.Entry{{Key: "user", Value: fmt.Sprint("u", user)}}},
					{Entries: []rules.Entry{{Key: "changing", Value: fmt.Sprint("c", n)}}, HasHits: true},
				}})
				asked.Add(1)
				if err != nil {
					failed.Add(1)
					continue
				}
				if resp.Statuses[0].Limit.Name != resp.Statuses[1].Limit.Name {
					mixed.Add(1)
				}
				if resp.Allowed() {
					admitted[user].Add(1)
				}
				if one, err := s.decide(&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
					{Entries: []rules.Entry{{Key: "changing", Value: "c"}}}}}); err == nil && one.Allowed() {
					admitted[users].Add(1)
				}
				runtime.Gosched() // otherwise the swaps wait for a time slice of every goroutine
			}
		})
	}
	sets := []*rules.Set{load(t, generations[0]), load(t, generations[1])}
	for n := range swaps {
		// wait for decisions of each generation
		for before := asked.Load(); asked.Load() < before+asking; {
			runtime.Gosched()
		}
		require.NoError(t, s.swap(sets[n%2]))
		if _, err := rules.Load(files("r.yaml", broken)); err == nil {
			t.Error("the broken rules loaded")
		}
		if err := s.swap(nil); err == nil {
			t.Error("Swap accepted a nil Set")
		}
	}
	stop.Store(true)
	group.Wait()
	f := findings{mixed: int(mixed.Load()), errors: int(failed.Load())}
	for i := range users {
		f.overAdmitted += max(0, int(admitted[i].Load())-100)
		f.underAdmitted += max(0, 100-int(admitted[i].Load()))
	}
	f.overAdmitted += max(0, int(admitted[users].Load())-80)
	f.underAdmitted += max(0, 50-int(admitted[users].Load()))
	return f
}

func engineOf(t *testing.T) *rules.Engine {
	engine, err := rules.New(load(t, generations[0]), rules.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { engine.Close() })
	return engine
}

func TestSwapUnderLoad(t *testing.T) {
	engine := engineOf(t)
	assert.Zero(t, underSwaps(t, swapper{
		decide: func(r *rules.Request) (*rules.Response, error) {
			return engine.Decide(context.Background(), r)
		},
		swap: engine.Swap,
	}))
}

// TestSwapUnderLoadRejects is the negative control: it checks that underSwaps detects two broken
// engines.
func TestSwapUnderLoadRejects(t *testing.T) {
	t.Run("an engine that loses its counters", func(t *testing.T) {
		var current atomic.Pointer[rules.Engine]
		current.Store(engineOf(t))
		f := underSwaps(t, swapper{
			decide: func(r *rules.Request) (*rules.Response, error) {
				return current.Load().Decide(context.Background(), r)
			},
			swap: func(s *rules.Set) error {
				if s == nil {
					return errors.New("none")
				}
				next, err := rules.New(s, rules.Config{})
				current.Store(next)
				return err
			},
		})
		assert.Positive(t, f.overAdmitted)
	})
	t.Run("an engine that reads the rules once for each descriptor", func(t *testing.T) {
		engine := engineOf(t)
		f := underSwaps(t, swapper{
			decide: func(r *rules.Request) (*rules.Response, error) {
				all := &rules.Response{}
				for _, d := range r.Descriptors {
					runtime.Gosched()
					resp, err := engine.Decide(context.Background(),
						&rules.Request{Domain: r.Domain, Descriptors: []rules.Descriptor{d}})
					if err != nil {
						return nil, err
					}
					all.Denied = all.Denied || resp.Denied
					all.Statuses = append(all.Statuses, resp.Statuses...)
				}
				return all, nil
			},
			swap: engine.Swap,
		})
		assert.Positive(t, f.mixed)
	})
}

func TestSwapRefusesRulesWithoutAStrategy(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	all := rules.StrategiesOf(limiter)
	engine, err := rules.New(load(t, house), rules.Config{})
	require.NoError(t, err)
	engine.Close()
	engine, err = rules.New(load(t, generations[0]),
		rules.Config{Strategies: func(m rules.Method) (weir.Strategy, error) {
			if m.Algorithm == rules.TokenBucket {
				return nil, errors.New("no buckets here")
			}
			return all(m)
		}})
	require.NoError(t, err)
	was := engine.Set()
	err = engine.Swap(load(t, house))
	assert.ErrorContains(t, err, "rules: no strategy for token bucket, burst 3: no buckets here")
	assert.Same(t, was, engine.Set(), "the old rules stay")
}

// TestSwapKeepsCounters has a row for each change of a rule, and whether its count is kept.
func TestSwapKeepsCounters(t *testing.T) {
	const before = `{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 10}}`
	for _, row := range []struct {
		name, before, after string
		kept                bool
	}{
		{"the limit is raised", before,
			`{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 20}}`, true},
		{"the limit is lowered", before,
			`{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 5}}`, true},
		{"the rule gets a name", before,
			`{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 10, name: n}}`, true},
		{"the value gets its own rule", before,
			`{key: k, value: ab, rate_limit: {unit: hour, requests_per_unit: 10}}`, true},
		{"the same period, written differently", before,
			`{key: k, value: 'a*', rate_limit: {unit: minute, unit_multiplier: 60, requests_per_unit: 10}}`,
			true},
		{"the unit changes", before,
			`{key: k, value: 'a*', rate_limit: {unit: minute, requests_per_unit: 10}}`, false},
		{"the algorithm changes", before,
			`{key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: ` +
				`10}, metadata: {weir: {algorithm: sliding_log}}}`, false},
		{"values start to share a counter", before,
			`{key: k, value: 'a*', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}`,
			false},
		{"a shared pattern changes",
			`{key: k, value: 'a*', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}`,
			`{key: k, value: '*b', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}`,
			false},
		{"a bucket's burst changes",
			`{key: k, rate_limit: {unit: hour, requests_per_unit: 10}, metadata: ` +
				`{weir: {algorithm: token_bucket, burst: 5}}}`,
			`{key: k, rate_limit: {unit: hour, requests_per_unit: 10}, metadata: {weir: {algorithm: ` +
				`token_bucket, ` +
				`burst: 9}}}`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, in(row.before), rules.Config{})
			w.ask(w.hits(3, "k=ab"))
			old := w.engine.Set()
			require.NoError(t, w.engine.Swap(load(t, in(row.after))))
			s := w.ask(w.hits(0, "k=ab")).Statuses[0]
			capacity := uint64(s.Limit.Requests)
			if s.Limit.Burst > 0 {
				capacity = s.Limit.Burst
			}
			assert.Equal(t, row.kept, s.Remaining == capacity-3, "%d of %d left", s.Remaining, capacity)
			// Diff must say the same.
			for _, c := range old.Diff(w.engine.Set()) {
				if !row.kept && c.What != "added" && c.What != "removed" {
					assert.Equal(t, "counters start at zero", c.Effect, c.String())
				}
				assert.False(t, row.kept && c.Effect == "counters start at zero", c.String())
			}
		})
	}
}

// TestDeniedRequestsAreNotCharged makes requests with two descriptors of which one denies. The hits
// that are counted and refunded must cancel out.
func TestDeniedRequestsAreNotCharged(t *testing.T) {
	engine, err := rules.New(load(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 100}}
`), rules.Config{})
	require.NoError(t, err)
	defer engine.Close()
	var passed atomic.Uint64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 50 {
				resp, err := engine.Decide(context.Background(),
					&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
						{Entries: []rules.Entry{{Key: "a", Value: "x"}}},
						{Entries: []rules.Entry{{Key: "b", Value: "x"}}}}})
				if err == nil && resp.Allowed() {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 100, passed.Load())
	resp, err := engine.Decide(context.Background(),
		&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: "a", Value: "x"}}, HasHits: true}}})
	require.NoError(t, err)
	assert.EqualValues(t, 1000000-100, resp.Statuses[0].Remaining)
}
