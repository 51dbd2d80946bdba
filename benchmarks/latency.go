package main

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// latencies are of single decisions, the reading of the clock around each included.
type latencies struct {
	n                   int
	p50, p99, p999, max time.Duration
}

func newLatencies(took []time.Duration) latencies {
	slices.Sort(took)
	at := func(per1000 int) time.Duration { return took[len(took)*per1000/1000] }
	return latencies{len(took), at(500), at(990), at(999), took[len(took)-1]}
}

// What is swept: a million buckets. Most of them end in waves, one an hour; the rest last, and are what decisions are
// timed on: more of them than weir's index of recent entries holds, so that look-ups go to the map that is being swept.
const (
	waves     = 20
	lasting   = 100_000
	ending    = million - lasting
	decisions = 500_000
)

// sweeping is what the timing alone costs, then the same decisions with nothing else going on, beside a goroutine that
// works on memory of its own, and beside one that sweeps.
type sweeping struct{ timing, idle, neighbour, swept latencies }

// ratio is what sweeping does to the slowest in a thousand.
func (s sweeping) ratio() float64 { return float64(s.swept.p999) / float64(s.idle.p999) }

// bestSweeping takes the best of each of n attempts, not the best attempt: a disturbed idle would flatter the sweep.
func bestSweeping(n int) sweeping {
	best := measureSweeping()
	for range n - 1 {
		s := measureSweeping()
		best = sweeping{
			timing:    better(best.timing, s.timing),
			idle:      better(best.idle, s.idle),
			neighbour: better(best.neighbour, s.neighbour),
			swept:     better(best.swept, s.swept),
		}
	}
	return best
}

func better(a, b latencies) latencies {
	if b.p999 < a.p999 {
		return b
	}
	return a
}

func measureSweeping() sweeping {
	var ahead atomic.Int64 // the clock runs, and is put forward from wave to wave
	begun := time.Now()
	l := must(weir.New(weir.Config{
		Timeout:    1, // ns: a bucket may go when it is over
		SweepEvery: day,
		Now:        func() time.Time { return time.Unix(0, int64(time.Since(begun))+ahead.Load()) },
	}))
	defer func() { must(0, l.Close()) }()
	ids := populate(l)
	decision := func(i int) { // in another order than they were inserted
		if r := must(l.CheckRate(ids[i*7919%lasting], 365*day.Milliseconds(), unlimited)); !r.Allowed() {
			panic("denied")
		}
	}
	var s sweeping
	settle()
	s.timing = timed(func(int) {}, decisions, nil)
	s.idle = timed(decision, decisions, nil)
	s.neighbour = beside(scribble, decision)
	swept := 0
	s.swept = beside(func(stop func() bool) {
		for range waves {
			ahead.Add(int64(time.Hour))
			swept += l.Sweep()
		}
	}, decision)
	if swept != ending || l.Stats().Buckets != lasting {
		panic(fmt.Sprintf("%d buckets were swept and %d are left, want %d and %d", swept, l.Stats().Buckets, ending, lasting))
	}
	return s
}

// populate makes the buckets, and returns the ids of those that last. The clock of l stands at the beginning of 1970,
// at which a window of every scale begins.
func populate(l *weir.Limiter) []string {
	ids := newStream(random().Perm(million), "").ids
	for i, id := range ids {
		scale := 365 * day
		if i >= lasting {
			scale = time.Duration(i%waves+1) * time.Hour
		}
		must(l.CheckRate(id, scale.Milliseconds(), unlimited))
	}
	return newStream(random().Perm(million)[:lasting], "").ids
}

// beside times decisions for as long as work takes, on the other core.
func beside(work func(stop func() bool), decision func(i int)) latencies {
	var enough, done atomic.Bool
	go func() {
		work(enough.Load)
		done.Store(true)
	}()
	l := timed(decision, decisions, func(n int) bool {
		enough.Store(n >= decisions)
		return done.Load()
	})
	return l
}

// timed times at least n decisions and, with an until, also as many more as it takes for that to come true.
func timed(decision func(i int), n int, until func(n int) bool) latencies {
	took := make([]time.Duration, 0, 20*n)
	base := time.Now()
	for i := 0; len(took) < cap(took); i++ {
		if until == nil && i >= n || until != nil && until(i) {
			break
		}
		before := time.Since(base)
		decision(i)
		took = append(took, time.Since(base)-before)
	}
	return newLatencies(took)
}

// scribble writes to 64 MiB in no order until it is stopped: a neighbour that shares the machine and nothing else.
func scribble(stop func() bool) {
	memory := make([]uint64, 8<<20)
	for x := uint32(1); !stop(); {
		for range 1000 {
			x = x*1664525 + 1013904223
			memory[x>>9]++
		}
	}
}

// growth is the slowest of the decisions that take a store from nothing to two million ids.
type growth struct {
	store string
	latencies
	slow int // decisions over a millisecond
}

const grown = 2 * million

var growing = lazily(shuffled(grown), "")

func measureGrowth(s store) growth {
	ids := growing().ids
	settle()
	in := s.open(quota{unlimited, day})
	defer in.close()
	d := in.caller()
	took := make([]time.Duration, grown)
	base := time.Now()
	for i, id := range ids {
		before := time.Since(base)
		if !d(id) {
			panic("denied")
		}
		took[i] = time.Since(base) - before
	}
	g := growth{store: s.name, latencies: newLatencies(took)}
	for _, t := range slices.Backward(took) {
		if t < time.Millisecond {
			break
		}
		g.slow++
	}
	return g
}

// bestGrowth is the best of n attempts: what else the machine does makes a stall longer, never shorter.
func bestGrowth(s store, n int) growth {
	best := measureGrowth(s)
	for range n - 1 {
		if g := measureGrowth(s); g.max < best.max {
			best = g
		}
	}
	return best
}
