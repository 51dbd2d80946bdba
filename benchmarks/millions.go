package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/weirgo/weir"
)

// The sizes of the tables that are grown: one beside go-limiter, and one in a process of its own.
const (
	grown = 5 * million
	huge  = 10 * million

	attempts = 5 // of each, the best of which counts
)

var (
	grownStore = store{"weir", modWeir, func(q quota) instance {
		return openCheckRate(q, weir.Config{MaxBuckets: grown})
	}}
	grows = []store{grownStore, goLimiterStore}
)

// growth is a store that was taken from nothing to five million ids.
type growth struct {
	footprint
	latencies     // of the decisions that did so
	Slow      int // decisions over a millisecond
	Lasted    time.Duration
}

// measureGrowth makes each id while the clock is stopped: a service has it from a request.
func measureGrowth(s store, n int) growth {
	settle()
	bare, before := collection(), heap()
	in := s.open(quota{unlimited, day})
	defer in.close()
	d := in.caller()
	took := make([]time.Duration, n)
	g := growth{footprint: footprint{Store: s.name}}
	base := time.Now()
	for i := range took {
		id := string(appendID(nil, i))
		begun := time.Since(base)
		if !d(id) {
			panic("denied")
		}
		if took[i] = time.Since(base) - begun; took[i] > time.Millisecond {
			g.Slow++
		}
	}
	g.latencies, g.Lasted = newLatencies(took), time.Since(base)
	settle()
	g.Bytes = (float64(heap()-before) - float64(8*len(took))) / float64(n)
	g.GC = max(0, collection()-bare)
	runtime.KeepAlive(took)
	return g
}

// bestGrowth is the best of n attempts: what else the machine does makes a stall longer, never
// shorter. Each has a process of its own, whose heap holds nothing that was measured before.
func bestGrowth(s store, n int) (best growth) {
	for i := range n {
		if g := alone[growth]("-grow", s.name); i == 0 || g.Max < best.Max {
			best = g
		}
	}
	return best
}

// grow is what the process of an attempt does.
func grow(name string) {
	i := slices.IndexFunc(grows, func(s store) bool { return s.name == name })
	if i < 0 {
		panic("no such store: " + name)
	}
	must(0, json.NewEncoder(os.Stdout).Encode(measureGrowth(grows[i], grown)))
}

// longestStall returns the longest time between two readings of the clock in a loop that does
// nothing else for d; the best of n attempts. No decision can be held to less on that machine.
func longestStall(d time.Duration, n int) time.Duration {
	best := d
	for range n {
		var longest, last time.Duration
		for base := time.Now(); last < d; {
			now := time.Since(base)
			longest, last = max(longest, now-last), now
		}
		best = min(best, longest)
	}
	return best
}

// hold fills a limiter with n ids, and prints the process's peak resident memory in bytes.
func hold(n int) {
	in := openCheckRate(quota{unlimited, day}, weir.Config{MaxBuckets: n})
	w := workload{known: n}
	w.fill(in.caller())
	if held := in.size(); held != n {
		panic(fmt.Sprintf("the limiter holds %d ids, want %d", held, n))
	}
	runtime.KeepAlive(in)
	must(0, json.NewEncoder(os.Stdout).Encode(peakResident()))
}

// peakResident returns this process's peak resident memory in bytes. Linux counts it in KiB.
func peakResident() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Maxrss * 1024
}

// alone runs this program again with the arguments, and returns what it prints.
func alone[T any](args ...string) (v T) {
	cmd := exec.CommandContext(context.Background(), must(os.Executable()), args...)
	cmd.Stderr = os.Stderr
	must(0, json.Unmarshal(must(cmd.Output()), &v))
	return v
}

// layout is the arithmetic of weir's memory: what a table of n ids takes by its construction.
type layout struct {
	n, shards int
	perShard  float64 // ids
	// Bytes an ID: the index, the unused slots of last chunks, the lists of chunks.
	words, slack, chunks float64
}

// The constants of the table.
const (
	slotBytes  = 64
	wordBytes  = 4
	chunkSlots = 128
	shardSlots = 20_000
	chunkBytes = 40 // what a shard keeps of a chunk, its pointer included
)

func layoutOf(n int) layout {
	l := layout{n: n, shards: 1}
	for l.shards*shardSlots < n {
		l.shards *= 2
	}
	l.perShard = float64(n) / float64(l.shards)
	small := 1.0 // words of an index of up to three quarters, for most shards
	for 3*small < 4*l.perShard {
		small *= 2
	}
	// Hashing spreads ids over shards by the normal distribution. A shard beyond the three quarters
	// has twice the words; one that is below half of them has half.
	more := beyond(small*3/4, l.perShard)
	fewer := 1 - beyond(small*3/8, l.perShard)
	l.words = wordBytes * small * (1 + more - fewer/2) / l.perShard
	l.slack = slotBytes * chunkSlots / 2 / l.perShard
	list := math.Exp2(math.Ceil(math.Log2(l.perShard / chunkSlots)))
	l.chunks = chunkBytes * list / l.perShard
	return l
}

// beyond returns the share of shards that hold more than most ids where the mean is mean.
func beyond(most, mean float64) float64 {
	return math.Erfc((most-mean)/math.Sqrt(2*mean)) / 2
}

func (l layout) perID() float64 { return slotBytes + l.words + l.slack + l.chunks }

func (l layout) total() float64 { return l.perID() * float64(l.n) }
