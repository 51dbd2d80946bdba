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

// The table sizes: grown is compared with go-limiter, huge runs in a process of its own.
const (
	grown = 5 * million
	huge  = 10 * million

	attempts = 5 // of each measurement; the best one counts
)

var (
	grownStore = store{"weir", modWeir, func(q quota) instance {
		return openCheckRate(q, weir.Config{MaxBuckets: grown})
	}}
	grows = []store{grownStore, goLimiterStore}
)

// growth describes a store that grew from empty to five million ids.
type growth struct {
	footprint
	latencies     // of the decisions that added the ids
	Slow      int // decisions that took over 1 ms
	Lasted    time.Duration
}

// measureGrowth fills a new store with n ids. It makes each id outside the timed part, since a
// service gets it from a request.
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
		took[i] = time.Since(base) - begun
		if took[i] > time.Millisecond {
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

// bestGrowth returns the best of n attempts, because other load on the machine can only lengthen a
// stall. Each attempt runs in its own process, with an empty heap.
func bestGrowth(s store, n int) (best growth) {
	for i := range n {
		if g := alone[growth]("-grow", s.name); i == 0 || g.Max < best.Max {
			best = g
		}
	}
	return best
}

// grow runs one attempt of bestGrowth and prints it as JSON.
func grow(name string) {
	i := slices.IndexFunc(grows, func(s store) bool { return s.name == name })
	if i < 0 {
		panic("no such store: " + name)
	}
	must(0, json.NewEncoder(os.Stdout).Encode(measureGrowth(grows[i], grown)))
}

// longestStall returns the longest time between two clock readings in a loop that runs for d and
// does nothing else; it is the best of n attempts. It is a lower bound for the longest decision on
// this machine.
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

// alone runs this program again with args and decodes the JSON that it prints.
func alone[T any](args ...string) (v T) {
	cmd := exec.CommandContext(context.Background(), must(os.Executable()), args...)
	cmd.Stderr = os.Stderr
	must(0, json.Unmarshal(must(cmd.Output()), &v))
	return v
}

// layout is the memory that a table of n ids takes according to its data structures.
type layout struct {
	n, shards int
	perShard  float64 // ids
	// Bytes per id: the index, the unused slots of last chunks, the lists of chunks.
	words, slack, chunks float64
}

// The constants of the table in package weir.
const (
	slotBytes  = 64
	wordBytes  = 4
	chunkSlots = 128
	shardSlots = 20_000
	chunkBytes = 40 // a shard's bookkeeping for a chunk, including its pointer
)

func layoutOf(n int) layout {
	l := layout{n: n, shards: 1}
	for l.shards*shardSlots < n {
		l.shards *= 2
	}
	l.perShard = float64(n) / float64(l.shards)
	small := 1.0 // index words of most shards, at most three quarters full
	for 3*small < 4*l.perShard {
		small *= 2
	}
	// The number of ids in a shard is normally distributed. A shard beyond three quarters of small
	// has twice as many words; one below half of that has half as many.
	more := beyond(small*3/4, l.perShard)
	fewer := 1 - beyond(small*3/8, l.perShard)
	l.words = wordBytes * small * (1 + more - fewer/2) / l.perShard
	l.slack = slotBytes * chunkSlots / 2 / l.perShard
	list := math.Exp2(math.Ceil(math.Log2(l.perShard / chunkSlots)))
	l.chunks = chunkBytes * list / l.perShard
	return l
}

// beyond returns the fraction of shards that hold more than most ids, given the mean.
func beyond(most, mean float64) float64 {
	return math.Erfc((most-mean)/math.Sqrt(2*mean)) / 2
}

func (l layout) perID() float64 { return slotBytes + l.words + l.slack + l.chunks }

func (l layout) total() float64 { return l.perID() * float64(l.n) }
