package main

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// footprint is the memory and garbage collection cost of a million ids in a store.
type footprint struct {
	Store string
	Bytes float64       // live heap per id
	GC    time.Duration // CPU time of one garbage collection, minus that without the store
}

func (f footprint) row(b *bytes.Buffer) {
	row(b, f.Store, fmt.Sprintf("%.0f", f.Bytes), fmt.Sprintf("%.0f", units(f.GC, time.Millisecond)))
}

// footprints fills each store with a million ids. Each id is a string with its own allocation, like
// an id read from a request.
func footprints(stores []store) []footprint {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	settle()
	bare := collection()
	var prints []footprint
	for _, s := range stores {
		settle()
		before := heap()
		in := s.open(zipf.quota)
		zipf.fill(in.caller())
		settle()
		bytes := float64(heap()-before) / float64(zipf.known)
		prints = append(prints, footprint{s.name, bytes, max(0, collection()-bare)})
		in.close()
		runtime.KeepAlive(in)
	}
	return prints
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// collection returns the CPU time of a full garbage collection, the median of three.
func collection() time.Duration {
	var took [3]time.Duration
	for i := range took {
		begun := bench.CPUTime()
		runtime.GC()
		took[i] = bench.CPUTime() - begun
	}
	slices.Sort(took[:])
	return took[len(took)/2]
}
