package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// mode is the number of processors and goroutines that a workload runs on.
type mode struct {
	name              string
	procs, goroutines int
}

var (
	oneCore  = mode{"1 core", 1, 1}
	twoCores = mode{"8 goroutines on 2 cores", 2, 8}
	modes    = []mode{oneCore, twoCores}
)

// sample is one measurement.
type sample struct {
	ns     float64 // per call
	allocs float64 // per call
	calls  int
}

// chunk is the number of calls that a goroutine makes between two clock readings.
const chunk = 4096

// run is a measurement in progress.
type run struct {
	*workload
	stream *stream
	until  time.Duration
	begun  time.Time
	next   atomic.Int64 // the first call of the next chunk

	calls, allowed atomic.Int64
}

// measure runs the workload on an open store. It panics if the verdicts, the number of calls or the
// number of ids differ from what the workload's name claims.
func measure(in instance, w *workload, m mode, benchtime time.Duration) sample {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(m.procs))
	r := &run{workload: w, stream: w.ids(), until: benchtime}
	callers := make([]decide, m.goroutines)
	for i := range callers {
		callers[i] = in.caller()
	}
	before, cpu := mallocs(), bench.CPUTime()
	r.begun = time.Now()
	r.all(callers)
	took := time.Since(r.begun)
	if m.procs == 1 {
		took = bench.CPUTime() - cpu
	}
	after := mallocs()
	r.check(in)
	n := float64(r.calls.Load())
	return sample{float64(took) / n, float64(after-before) / n, int(n)}
}

func (r *run) all(callers []decide) {
	if len(callers) == 1 {
		r.work(callers[0])
		return
	}
	var wg sync.WaitGroup
	for _, d := range callers {
		wg.Go(func() { r.work(d) })
	}
	wg.Wait()
}

// work makes calls, chunk by chunk, until the whole stream was used once and, unless r.once is set,
// until the time is up.
func (r *run) work(d decide) {
	ids := r.stream.ids
	calls, allowed := 0, 0
	for {
		first := int(r.next.Add(chunk)) - chunk
		n := chunk
		if r.once {
			n = min(n, len(ids)-first)
		}
		if n <= 0 {
			break
		}
		i := first % len(ids)
		for range n {
			if d(ids[i]) {
				allowed++
			}
			i++
			if i == len(ids) {
				i = 0
			}
		}
		calls += n
		if !r.once && first+n >= len(ids) && time.Since(r.begun) >= r.until {
			break
		}
	}
	r.calls.Add(int64(calls))
	r.allowed.Add(int64(allowed))
}

// check panics if the verdicts or the ids differ from what the workload's name claims.
func (r *run) check(in instance) {
	calls, allowed := int(r.calls.Load()), int(r.allowed.Load())
	want := 0
	if r.allow {
		want = calls
	}
	if allowed != want {
		panic(fmt.Sprintf("%s: %d of %d calls were admitted, want %d", r.name, allowed, calls, want))
	}
	if calls < len(r.stream.ids) {
		panic(fmt.Sprintf("%s: %d calls were made, too few for all %d of the stream", r.name, calls,
			len(r.stream.ids)))
	}
	if in.size == nil {
		return
	}
	if held, want := in.size(), max(r.known, r.stream.distinct); held != want {
		panic(fmt.Sprintf("%s: the store holds %d ids, want %d", r.name, held, want))
	}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// prepare opens a store and fills it with the ids that the workload expects.
func prepare(s store, w *workload) instance {
	in := s.open(w.quota)
	w.fill(in.caller())
	settle()
	return in
}

// settle frees the memory of earlier stores. ulule's store stops in a finalizer and becomes garbage
// only after that, so settle collects three times.
func settle() {
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond) // time for the finalizers
	}
}
