package servercmd

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
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
	percent := gcPercent(heapInUse())
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if next := gcPercent(heapInUse()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	}
}

// gcPercent returns the GOGC that leaves heapRoom beside a heap of which so many bytes are in use,
// in steps, since each change stops the program for an instant.
func gcPercent(inUse uint64) int {
	const step = 50
	percent := 100 * heapRoom / max(inUse, 1<<20)
	return int(max(100, percent/step*step))
}

// heapInUse returns how many bytes of the heap the last collection has found in use.
func heapInUse() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
