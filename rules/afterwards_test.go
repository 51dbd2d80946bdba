package rules_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/rules"
)

var algorithms = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket"}

func reported(text, algorithm string) string {
	return strings.ReplaceAll(text, "OWN",
		"metadata: {weir: {costs: afterwards, algorithm: "+algorithm+"}}")
}

// A client peeks at two limits, and reports a cost over one of them on both when it is done: from
// the third call on the larger limit is used up.
func TestReportsOverOneLimitCountInTheOther(t *testing.T) {
	for _, algorithm := range algorithms {
		w := newWorld(t, reported(`
domain: d
descriptors:
  - {key: second, OWN, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: day, OWN, rate_limit: {unit: day, requests_per_unit: 10000}}
`, algorithm), rules.Config{})
		var passed int
		for range 6 {
			w.now = w.now.Add(time.Minute) // a bucket has paid for a call by then
			if w.ask(w.hits(0, "second=x"), w.hits(0, "day=x")).Allowed() {
				passed++
				w.ask(w.hits(5000, "second=x"), w.hits(5000, "day=x"))
			}
		}
		assert.Equal(t, 3, passed, algorithm)
	}
}

// Ten tries a second for ten minutes, with 5,000 of 100,000 a minute each: in no minute more is
// used than the limit and the cost of a call, or in windows twice that.
func TestReportsHoldTheLimit(t *testing.T) {
	const limit, cost = 100_000, 5_000
	for _, algorithm := range algorithms {
		w := newWorld(t, reported(`
domain: d
descriptors:
  - {key: minute, OWN, rate_limit: {unit: minute, requests_per_unit: 100000}}
`, algorithm), rules.Config{})
		var used []time.Time // each at a cost
		worst := 0
		for range 6000 {
			w.now = w.now.Add(100 * time.Millisecond)
			if !w.ask(w.hits(0, "minute=x")).Allowed() {
				continue
			}
			w.ask(w.hits(cost, "minute=x"))
			used = append(used, w.now)
			inWindow := 0
			for _, at := range used {
				if w.now.Sub(at) < time.Minute {
					inWindow += cost
				}
			}
			worst = max(worst, inWindow)
		}
		span := map[string]int{"sliding_log": limit + cost}[algorithm]
		if span == 0 {
			// any span of a minute lies across two windows, or a bucket and what flows in
			span = 2 * (limit + cost)
		}
		assert.LessOrEqual(t, worst, span, algorithm)
		assert.LessOrEqual(t, len(used)*cost, 11*(limit+cost), "%s: ten minutes and one", algorithm)
		assert.GreaterOrEqual(t, len(used)*cost, 8*limit, algorithm)
	}
}

// counting is Envoy's service without its local cache: INCRBY on every limit, and the verdict of
// the result.
type counting struct {
	limits map[string]uint64
	counts map[string]uint64
}

func (c *counting) ask(descriptors []rules.Descriptor) (code string, statuses []string) {
	code = ok
	for _, d := range descriptors {
		key := d.Entries[0].Key + "=" + d.Entries[0].Value
		c.counts[key] += d.Hits
		statuses = append(statuses, ok)
		if c.counts[key] > c.limits[d.Entries[0].Key] {
			code, statuses[len(statuses)-1] = over, over
		}
	}
	return code, statuses
}

// CountDenied decides as Envoy's service does, on 10,000 random requests.
func TestCountDeniedEqualsEnvoysCounting(t *testing.T) {
	const text = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 50}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 5}}
`
	differences := func(cfg rules.Config) (n int) {
		w, random := newWorld(t, text, cfg), rand.New(rand.NewPCG(7, 8))
		model := counting{limits: map[string]uint64{"a": 20, "b": 50, "c": 5},
			counts: map[string]uint64{}}
		for range 10_000 {
			var list []rules.Descriptor
			for range 1 + random.IntN(3) {
				key := []string{"a", "b", "c"}[random.IntN(3)]
				list = append(list, w.hits(random.Uint64N(4), key+"="+[]string{"x", "y"}[random.IntN(2)]))
			}
			code, statuses := model.ask(list)
			resp := w.ask(list...)
			same := resp.Code() == code
			for i := range statuses {
				same = same && resp.Statuses[i].Code() == statuses[i]
			}
			if !same {
				n++
			}
			if random.IntN(40) == 0 {
				w.now = w.now.Truncate(time.Minute).Add(time.Minute)
				clear(model.counts)
			}
		}
		return n
	}
	assert.Zero(t, differences(rules.Config{CountDenied: true}))
	assert.Positive(t, differences(rules.Config{}), "the default counts denied requests nowhere")
}

// Rules with costs that are known afterwards need a strategy that can charge, and CountDenied one
// for overrides, too.
func TestReportsNeedACharger(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	strategies := func(m rules.Method) (weir.Strategy, error) {
		if m.Algorithm == rules.TokenBucket {
			return limiter.TokenBucket(m.Burst), nil
		}
		return ops.Without(limiter.FixedWindow(), weir.OpCharge), nil
	}
	for _, row := range []struct {
		own         string
		countDenied bool
		want        string
	}{
		{"{costs: afterwards}", false, "a strategy that can charge"},
		{"{}", true, "a strategy that can charge"},
		{"{algorithm: token_bucket}", true, "overrides"},
	} {
		set := load(t, in("{key: k, metadata: {weir: "+row.own+"}, rate_limit: {unit: minute, requests_per_unit: 5}}"))
		_, err = rules.New(set, rules.Config{CountDenied: row.countDenied, Strategies: strategies})
		require.ErrorContains(t, err, row.want, row.own)
	}
}
