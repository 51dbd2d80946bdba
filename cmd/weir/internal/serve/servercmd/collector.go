package servercmd

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is by how much the heap of a server grows before it is collected, in bytes, while less
// than that is in use. A proxy has some 3 MB in use, and each request leaves some 10 KB: with Go's
// default the collector would run every 300 requests, and take a sixth of their cost.
const heapRoom = 16 << 20

// leaveRoom has the garbage collector leave heapRoom until ctx ends. A heap with more in use
// doubles before it is collected, as by default. It leaves a GOGC of the environment in force;
// GOMEMLIMIT holds in any case.
func leaveRoom(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := gcPercent(inUse())
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	collected := make(chan struct{}, 1)
	for {
		afterCollection(func() {
			select {
			case collected <- struct{}{}:
			default: // a look is due already
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-collected:
		}
		if next := gcPercent(inUse()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	}
}

// afterCollection has f called after the next collection.
func afterCollection(f func()) {
	runtime.AddCleanup(new([64]byte), func(f func()) { f() }, f)
}

// gcPercent returns the GOGC that leaves heapRoom beside so many bytes in use, in steps, since each
// change stops the program for an instant. It is at most 400: then a heap of less than 16 MB is not
// collected, since by default one of 4 MB is not.
func gcPercent(inUse uint64) int {
	const step, smallest = 50, 4 << 20
	percent := 100 * heapRoom / max(inUse, smallest)
	return int(max(100, percent/step*step))
}

// inUse returns how many bytes the last collection has found in use, with stacks and globals, of
// which GOGC is a part, too.
func inUse() (n uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		n += s.Value.Uint64()
	}
	return n
}
