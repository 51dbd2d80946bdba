package main

import (
	"slices"
	"sync/atomic"
	"testing"
)

// The benchmarks run the driver's workloads one at a time, for profiles and benchstat. To compare
// stores, use the driver, which interleaves them.
func BenchmarkCalls(b *testing.B)         { benchmark(b, "Calls") }
func BenchmarkCheckRate(b *testing.B)     { benchmark(b, "CheckRate") }
func BenchmarkTokenBucket(b *testing.B)   { benchmark(b, "TokenBucket") }
func BenchmarkSlidingWindow(b *testing.B) { benchmark(b, "SlidingWindow") }
func BenchmarkMiddleware(b *testing.B)    { benchmark(b, "Middleware") }
func BenchmarkStrategies(b *testing.B)    { benchmark(b, "Strategies") }
func BenchmarkHold(b *testing.B)          { benchmark(b, "Hold") }
func BenchmarkTicking(b *testing.B)       { benchmark(b, "Ticking") }

func benchmark(b *testing.B, name string) {
	for _, g := range slices.Concat(groups, verbGroups) {
		if g.name != name {
			continue
		}
		for _, w := range g.workloads {
			for _, s := range g.stores {
				b.Run(w.name+"/store="+s.name, func(b *testing.B) { sequential(b, s, w) })
				b.Run(w.name+"/store="+s.name+"/parallel", func(b *testing.B) { parallel(b, s, w) })
			}
		}
	}
}

// laps runs b.N calls in laps. If the workload uses its stream only once, each lap has a new store.
func laps(
	b *testing.B, s store, w *workload, run func(in instance, ids []string, n int) (allowed int),
) {
	ids := w.ids().ids
	b.ReportAllocs()
	in := prepare(s, w)
	b.StopTimer()
	b.ResetTimer()
	for left := b.N; left > 0; {
		n := left
		if w.once {
			n = min(n, len(ids))
		}
		b.StartTimer()
		allowed := run(in, ids, n)
		b.StopTimer()
		if w.allow && allowed != n || !w.allow && allowed != 0 {
			b.Fatalf("%d of %d were admitted", allowed, n)
		}
		if left -= n; left > 0 {
			in.close()
			in = prepare(s, w)
		}
	}
	if in.size != nil {
		if held, known := in.size(), w.known; held < known {
			b.Fatalf("the store holds %d ids, want at least %d", held, known)
		}
	}
	in.close()
}

func sequential(b *testing.B, s store, w *workload) {
	laps(b, s, w, func(in instance, ids []string, n int) (allowed int) {
		d, i := in.caller(), 0
		for range n {
			if d(ids[i]) {
				allowed++
			}
			if i++; i == len(ids) {
				i = 0
			}
		}
		return allowed
	})
}

func parallel(b *testing.B, s store, w *workload) {
	if w.once {
		b.Skip("each id is new only once: use the driver")
	}
	ids := w.ids().ids
	in := prepare(s, w)
	defer in.close()
	var allowed, workers atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		d, n := in.caller(), 0
		for i := int(workers.Add(1)) * len(ids) / 8 % len(ids); pb.Next(); {
			if d(ids[i]) {
				n++
			}
			if i++; i == len(ids) {
				i = 0
			}
		}
		allowed.Add(int64(n))
	})
	if got := int(allowed.Load()); w.allow && got != b.N || !w.allow && got != 0 {
		b.Fatalf("%d of %d were admitted", got, b.N)
	}
}
