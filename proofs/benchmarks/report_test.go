package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// made returns results in which each of weir's stores takes ours ns per call, and each rival 100
// ns.
func made(ours float64) *results {
	r := &results{figures: figures{}, begun: time.Now(), load: "0.00"}
	for _, g := range groups {
		for _, w := range g.workloads {
			for _, m := range modes {
				for _, s := range g.stores {
					ns := 100.0
					if s.module == modWeir {
						ns = ours
					}
					r.figures[cell{g.name, w.name, m.name, s.name}] = []sample{{ns: ns}, {ns: ns * 9},
						{ns: ns / 9}}
				}
			}
		}
	}
	for _, s := range prints {
		r.rivals = append(r.rivals, footprint{s.name, 123, 45 * time.Millisecond})
	}
	for _, s := range strategies {
		r.ours = append(r.ours, footprint{s.name, 123, 45 * time.Millisecond})
	}
	unit := time.Duration(ours)
	idle := latencies{1000, 100, 200, 10, 1000}
	r.sweeping = sweeping{idle, idle, idle, latencies{1000, 100, 200, unit * 100, 1000}}
	for _, s := range grows {
		f := footprint{s.name, 100, 2 * time.Second}
		if s.module == modWeir {
			f = footprint{s.name, ours, unit * time.Millisecond}
		}
		r.growths = append(r.growths,
			growth{f, latencies{1000, 1, 2, 3, unit * 50 * time.Microsecond}, 4, 1})
	}
	r.peak = ours * 1e7
	return r
}

func TestReportListsBarsMetAndMissed(t *testing.T) {
	all := len(bars) + len(modes)*(len(callBars)+len(shareBars)+len(strategyBars))
	tests := []struct {
		name        string
		ours        float64
		met, missed int
	}{
		{"weir takes a fifth of a rival's time", 20, all, 0},
		// Allocations, the size of a process, and weir's time divided by its own do not depend on the
		// speed, and the four bars of Hold ask for no more than the rival's time.
		{"weir is no faster", 100, 25, all - 25},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := string(made(tt.ours).report())
			if met := strings.Count(report, "| met |"); met != tt.met {
				t.Errorf("%d bars are met, want %d:\n%s", met, tt.met, report)
			}
			if missed := strings.Count(report, "| **missed** |"); missed != tt.missed {
				t.Errorf("%d bars are missed, want %d:\n%s", missed, tt.missed, report)
			}
			if listed := strings.Count(report, ", at most "); listed != tt.missed {
				t.Errorf("%d bars are listed as missed, want %d:\n%s", listed, tt.missed, report)
			}
		})
	}
}

func TestPrintedBarsAreThoseMeasured(t *testing.T) {
	all := made(20).figures
	some := figures{}
	for c := range all {
		if c.group == "TokenBucket" && c.workload == hot.name && c.store != "throttled" {
			some[c] = all[c]
		}
	}
	var got []string
	for _, b := range ratiosOf(some) {
		got = append(got, b.is)
	}
	want := []string{"token bucket, hot id, vs x/time/rate in a sync.Map, 1 core",
		"token bucket, hot id, vs x/time/rate in a sync.Map, 8 goroutines on 2 cores"}
	if !slices.Equal(got, want) {
		t.Fatalf("bars %q, want %q", got, want)
	}
}

func TestWithinComparesRoundedFigures(t *testing.T) {
	for measured, want := range map[float64]bool{0.64: true, 0.65: true, 0.6549: true, 0.656: false,
		1: false} {
		if got := within(measured, 0.65); got != want {
			t.Errorf("%v under a bar of 0.65: met is %t, want %t", measured, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	samples := []sample{{ns: 1000}, {ns: 3}, {ns: 2}, {ns: 1}, {ns: 4}}
	if got := bench.MedianOf(samples, func(s sample) float64 { return s.ns }); got != 3 {
		t.Fatalf("median %v, want 3", got)
	}
}

func TestRatioIsMedianOfTurns(t *testing.T) {
	f := figures{
		cell{store: "a"}: {{ns: 50}, {ns: 10}, {ns: 40}},
		cell{store: "b"}: {{ns: 100}, {ns: 20}, {ns: 20}},
	}
	// The ratio of the medians would be 40/20.
	if got := f.ratio(cell{store: "a"}, cell{store: "b"}); got != 0.5 {
		t.Fatalf("ratio %v, want 0.5", got)
	}
}

func TestPercentiles(t *testing.T) {
	took := make([]time.Duration, 1000)
	for i := range took {
		took[len(took)-1-i] = time.Duration(i)
	}
	if got, want := newLatencies(took), (latencies{1000, 500, 990, 999, 999}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

// TestLayoutMatchesTable compares the computed bytes per id with a small table.
func TestLayoutMatchesTable(t *testing.T) {
	const n = 60_000
	g := measureGrowth(store{"weir", modWeir, func(q quota) instance {
		return openCheckRate(q, weir.Config{MaxBuckets: n})
	}}, n)
	if want := layoutOf(n).perID(); g.Bytes < want-3 || g.Bytes > want+3 {
		t.Fatalf("%.1f bytes per id, the layout has %.1f", g.Bytes, want)
	}
}
