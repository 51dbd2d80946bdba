package metrics_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/overload"
)

// every returns all groups, read from these figures.
func every(l weir.Stats, f fallback.Stats) map[string]metrics.Group {
	return map[string]metrics.Group{
		"limiter":  metrics.Limiter(func() weir.Stats { return l }),
		"http":     metrics.HTTP(func(o httplimit.Kind) uint64 { return uint64(o) }),
		"fallback": metrics.Fallback(func() fallback.Stats { return f }),
		"leases": metrics.Leases(func() near.LeaseStats {
			return near.LeaseStats{Leased: 1, Fetched: 2, Keys: 3}
		}),
		"holds": metrics.Holds(),
		"overload": metrics.Overload(func() overload.Stats {
			return overload.Stats{Limit: 1, InFlight: 2, Latency: 3 * time.Second, Goal: 4 * time.Second,
				Refused: map[overload.Class]map[overload.Reason]uint64{
					overload.Critical: {overload.ClassFull: 5, overload.ShareUsed: 6}}}
		}),
	}
}

func TestEveryMetricIsDescribedAndRead(t *testing.T) {
	named := regexp.MustCompile(`^weir(\.[a-z_]+)+$`)
	seen := map[string]bool{}
	for name, s := range every(weir.Stats{}, fallback.Stats{}) {
		read := make([]int, len(s.Descs))
		s.Read(func(i int, label string, _ float64) {
			read[i]++
			assert.Equal(t, strings.ToLower(label), label, s.Descs[i].Name)
			assert.Equal(t, s.Descs[i].Label == "", label == "", s.Descs[i].Name)
		})
		for i, d := range s.Descs {
			assert.Regexp(t, named, d.Name)
			assert.NotEmpty(t, d.Help, d.Name)
			assert.Regexp(t, `^(s|\{[a-z]+\})$`, d.Unit, d.Name)
			assert.False(t, seen[d.Name], "%s is there twice", d.Name)
			seen[d.Name] = true
			assert.Positive(t, read[i], "%s of %s is not read", d.Name, name)
		}
	}
	for name := range seen {
		for i := range name {
			assert.False(t, name[i] == '.' && seen[name[:i]], "%s is in the namespace of a metric", name)
		}
	}
}

func TestSourcesReadTheirFigures(t *testing.T) {
	groups := every(
		weir.Stats{
			Allowed: 1, Denied: 2, Invalid: 3, Full: 4, Closed: 5,
			Buckets: 6, MaxBuckets: 7, Swept: 8, Sweeps: 9, LastSweep: 10 * time.Second, Held: 11,
		},
		fallback.Stats{
			State: fallback.HalfOpen, OpenPartitions: 1, Primary: 2, Lease: 3, Denials: 4, Local: 5,
			OnFail: 6,
			Opens:  7, Probes: 8, Failures: 9, Reconciled: 10, Dropped: 11, Callers: 12, Panics: 13,
			ShortDeadlines: 14,
		})
	got := map[string]float64{}
	for _, s := range groups {
		s.Read(func(i int, label string, value float64) {
			got[s.Descs[i].PrometheusName()+" "+label] = value
		})
	}
	for sample, want := range map[string]float64{
		"weir_checks_total allowed": 1, "weir_checks_total denied": 2, "weir_checks_total invalid": 3,
		"weir_checks_total full": 4, "weir_checks_total closed": 5, "weir_buckets ": 6,
		"weir_max_buckets ":         7,
		"weir_hold_places ":         11,
		"weir_swept_buckets_total ": 8, "weir_sweeps_total ": 9, "weir_last_sweep_seconds ": 10,
		"weir_requests_total denied":            float64(httplimit.Denied),
		"weir_requests_total exempt":            float64(httplimit.Exempt),
		"weir_fallback_breaker_state half-open": 1, "weir_fallback_breaker_state open": 0,
		"weir_fallback_breaker_state closed":    0,
		"weir_fallback_open_partitions ":        1,
		"weir_fallback_decisions_total primary": 2, "weir_fallback_decisions_total lease": 3,
		"weir_fallback_decisions_total denials": 4, "weir_fallback_decisions_total local": 5,
		"weir_fallback_decisions_total on_fail": 6, "weir_fallback_breaker_opens_total ": 7,
		"weir_fallback_probes_total ": 8, "weir_fallback_failures_total ": 9,
		"weir_fallback_reconciled_total ": 10, "weir_fallback_dropped_total ": 11,
		"weir_fallback_callers ": 12, "weir_fallback_panics_total ": 13,
		"weir_fallback_short_deadlines_total ": 14,
		"weir_overload_limit ":                 1, "weir_overload_in_flight ": 2, "weir_overload_latency_seconds ": 3,
		"weir_overload_goal_seconds ": 4, "weir_overload_refused_total critical,full": 5,
		"weir_overload_refused_total critical,share": 6,
		"weir_lease_decisions_total ":                1, "weir_lease_fetches_total ": 2, "weir_leases ": 3,
	} {
		assert.Contains(t, got, sample)
		assert.Equal(t, want, got[sample], sample)
	}
}

// elsewhere returns s as of another process, whose places are lost when they are to be renewed.
func elsewhere(s *weir.InFlight) weir.Strategy {
	return ops.Through(ops.Afar(s), func(_ context.Context, op *weir.Op, next func()) {
		if op.Verb != weir.OpRenew {
			next()
			return
		}
		op.Verb = weir.OpRelease
		next()
		op.Verb, op.Result = weir.OpRenew, weir.Result{}
	})
}

func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		read := func() map[string]float64 {
			got := map[string]float64{}
			for _, s := range []metrics.Group{metrics.Limiter(limiter.Stats), metrics.Holds()} {
				s.Read(func(i int, _ string, value float64) {
					if name := s.Descs[i].PrometheusName(); strings.HasPrefix(name, "weir_hold_") {
						got[name] = value
					}
				})
			}
			return got
		}
		before := read() // some are of the process
		reads := func(places, leases, waits, lapsed float64) {
			t.Helper()
			assert.Equal(t, map[string]float64{
				"weir_hold_places": places, "weir_hold_leases": leases,
				"weir_hold_waits_total":  before["weir_hold_waits_total"] + waits,
				"weir_hold_lapsed_total": before["weir_hold_lapsed_total"] + lapsed,
			}, read())
		}
		reads(0, 0, 0, 0)
		r := &weir.Request{Key: "a", Limit: 2, Duration: 30 * time.Second, Cost: 2}
		held, err := weir.Hold(t.Context(), limiter.InFlight(), r)
		require.NoError(t, err)
		reads(2, 0, 0, 0)
		go func() {
			time.Sleep(time.Second)
			reads(2, 0, 1, 0)
			assert.NoError(t, held.Release(t.Context()))
		}()
		held, err = weir.HoldWait(t.Context(), limiter.InFlight(), r)
		require.NoError(t, err)
		reads(2, 0, 1, 0)
		require.NoError(t, held.Release(t.Context()))
		reads(0, 0, 1, 0)
		held, err = weir.Hold(t.Context(), elsewhere(limiter.InFlight()), r)
		require.NoError(t, err)
		reads(2, 1, 1, 0) // as behind a fallback, in which a place of Redis is held here too
		<-held.Lost()
		reads(0, 0, 1, 1)
		require.NoError(t, held.Release(t.Context()))
		reads(0, 0, 1, 1)
	})
}

// However many goroutines bring new values, a label has at most MaxValues of them and "other".
func TestLabelIsBounded(t *testing.T) {
	var l metrics.Label
	var mu sync.Mutex
	values := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 10_000 {
				v := l.Value(fmt.Sprint(i))
				mu.Lock()
				values[v]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, len(values), metrics.MaxValues+1)
	assert.Positive(t, values["other"])
	for v, n := range values {
		if v != "other" {
			assert.Equal(t, v, l.Value(v), "a value that was there stays, after %d times", n)
		}
	}
}

func TestLabelIsValidUTF8(t *testing.T) {
	var l metrics.Label
	assert.Equal(t, "a\uFFFD", l.Value("a\xff"))
	assert.Equal(t, "", l.Value(""))
}
