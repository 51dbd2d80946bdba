package main

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// latencies are percentiles of the time of single decisions, including two clock readings.
type latencies struct {
	N                   int
	P50, P99, P999, Max time.Duration
}

func (l latencies) row(b *bytes.Buffer, name string) {
	row(b, name, fmt.Sprint(l.N), fmt.Sprint(l.P50.Nanoseconds()), fmt.Sprint(l.P99.Nanoseconds()),
		fmt.Sprint(l.P999.Nanoseconds()), fmt.Sprintf("%.0f", units(l.Max, time.Microsecond)))
}

func newLatencies(took []time.Duration) latencies {
	slices.Sort(took)
	at := func(per1000 int) time.Duration { return took[len(took)*per1000/1000] }
	return latencies{len(took), at(500), at(990), at(999), took[len(took)-1]}
}

// measureSweeping makes ending buckets that expire in waves, an hour apart, and sweeps them. It
// times decisions on another lasting buckets, which do not expire.
const (
	waves     = 20
	lasting   = 100_000
	ending    = million
	decisions = 500_000
)

// sweeping holds the latencies of an empty call, of decisions without other load, of decisions
// while another goroutine writes to its own memory, and of decisions during a sweep.
type sweeping struct{ timing, idle, neighbor, swept latencies }

// bestSweeping returns the best value of each field in n attempts. Taking one attempt as a whole
// could pair a disturbed idle with an undisturbed sweep, which would flatter the sweep.
func bestSweeping(n int) sweeping {
	best := measureSweeping()
	for range n - 1 {
		s := measureSweeping()
		best = sweeping{
			timing:   better(best.timing, s.timing),
			idle:     better(best.idle, s.idle),
			neighbor: better(best.neighbor, s.neighbor),
			swept:    better(best.swept, s.swept),
		}
	}
	return best
}

func better(a, b latencies) latencies {
	if b.P999 < a.P999 {
		return b
	}
	return a
}

func measureSweeping() sweeping {
	var ahead atomic.Int64 // how far the clock has been advanced, in ns
	begun := time.Now()
	l := must(weir.New(weir.Config{
		MaxBuckets: lasting + ending,
		Timeout:    1, // ns: a sweep removes a bucket as soon as its window ends
		SweepEvery: day,
		Now:        func() time.Time { return time.Unix(0, int64(time.Since(begun))+ahead.Load()) },
	}))
	defer func() { must(0, l.Close()) }()
	ids := populate(l)
	decision := func(id string) {
		if r := must(l.CheckRate(id, 365*day.Milliseconds(), unlimited)); !r.Allowed() {
			panic("denied")
		}
	}
	var s sweeping
	settle()
	s.timing = timed(ids, func(string) {}, nil)
	s.idle = timed(ids, decision, nil)
	s.neighbor = beside(ids, scribble, decision)
	swept := 0
	s.swept = beside(ids, func(stop func() bool) {
		for range waves {
			ahead.Add(int64(time.Hour))
			swept += l.Sweep()
		}
	}, decision)
	if swept != ending || l.Stats().Buckets != lasting {
		panic(fmt.Sprintf("%d buckets were swept and %d are left, want %d and %d", swept,
			l.Stats().Buckets,
			ending, lasting))
	}
	return s
}

// populate makes all buckets and returns the ids of the lasting ones. The clock of l starts near
// the beginning of 1970, where windows of every length begin.
func populate(l *weir.Limiter) []string {
	ids := newStream(random().Perm(lasting+ending), "").ids
	for i, id := range ids {
		scale := 365 * day
		if i >= lasting {
			scale = time.Duration(i%waves+1) * time.Hour
		}
		must(l.CheckRate(id, scale.Milliseconds(), unlimited))
	}
	return newStream(random().Perm(lasting + ending)[:lasting], "").ids
}

// beside times decisions until work, which runs on the other core, returns.
func beside(ids []string, work func(stop func() bool), decision func(id string)) latencies {
	var enough, done atomic.Bool
	go func() {
		work(enough.Load)
		done.Store(true)
	}()
	l := timed(ids, decision, func(n int) bool {
		enough.Store(n >= decisions)
		return done.Load()
	})
	return l
}

// timed times decisions on ids, in an order other than that of insertion. If until is nil, it makes
// as many decisions as the constant says. Otherwise it stops when until returns true, or after 20
// times as many. It reads each id before it starts the clock, since a service has just read the id
// from a request.
func timed(ids []string, decision func(id string), until func(n int) bool) latencies {
	took := make([]time.Duration, 0, 20*decisions)
	read := 0
	base := time.Now()
	for i := 0; len(took) < cap(took); i++ {
		if until == nil && i >= decisions || until != nil && until(i) {
			break
		}
		id := ids[i*7919%len(ids)]
		read += int(id[len(id)-1])
		before := time.Since(base)
		decision(id)
		took = append(took, time.Since(base)-before)
	}
	runtime.KeepAlive(read) // keeps the compiler from removing the reads
	return newLatencies(took)
}

// scribble writes to 64 MiB in random order until stop returns true. It loads the machine but
// shares no data with the limiter.
func scribble(stop func() bool) {
	memory := make([]uint64, 8<<20)
	for x := uint32(1); !stop(); {
		for range 1000 {
			x = x*1664525 + 1013904223
			memory[x>>9]++
		}
	}
}
