package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// childJob is the environment variable that makes this test binary run as the child process in
// which memory is measured.
const childJob = "WEIR_VERIFY_CHILD"

// flood is the input and the measurements of the child.
type flood struct {
	IDs, Room, Cycles int

	MostBuckets         int     // the most at any time
	PeakRSS             int64   // bytes; 0 if the system does not report it
	Before, Full, After []int64 // live heap of each cycle
	Admitted, Refused   uint64
	Err                 string
}

// runChild fills a limiter with distinct IDs and lets them expire, several times.
func runChild() int {
	var f flood
	if err := json.Unmarshal([]byte(os.Getenv(childJob)), &f); err != nil {
		return 1
	}
	f.run()
	out, err := json.Marshal(f)
	if err != nil {
		return 1
	}
	os.Stdout.Write(out)
	return 0
}

func (f *flood) run() {
	const scale = 1000
	var clock atomic.Int64
	l, err := weir.New(weir.Config{
		MaxBuckets: f.Room, Timeout: 1, SweepEvery: 100 * time.Millisecond,
		Now: func() time.Time { return at(clock.Load()) },
	})
	if err != nil {
		f.Err = err.Error()
		return
	}
	defer l.Close()
	next := 0
	for range f.Cycles {
		f.Before = append(f.Before, liveHeap())
		// Each window has 1.25 times as many IDs as there is room: the table fills, and is reclaimed in
		// the next window.
		for end := next + f.IDs; next < end; next += f.Room * 5 / 4 {
			clock.Add(scale)
			f.fill(l, next, min(next+f.Room*5/4, end))
			f.MostBuckets = max(f.MostBuckets, l.Stats().Buckets)
			if next+f.Room*5/4 >= end {
				f.Full = append(f.Full, liveHeap())
			}
		}
		clock.Add(1000 * scale)
		l.Sweep()
		l.Sweep()
		f.After = append(f.After, liveHeap())
	}
	f.MostBuckets = max(f.MostBuckets, l.Stats().Buckets)
	s := l.Stats()
	f.Admitted, f.Refused, f.PeakRSS = s.Allowed, s.Full, peakRSS()
}

// fill calls CheckRate for the IDs from..to in four goroutines, while a fifth reads the number of
// buckets.
func (f *flood) fill(l *weir.Limiter, from, to int) {
	const callers = 4
	var wg, watch sync.WaitGroup
	stop := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				f.MostBuckets = max(f.MostBuckets, l.Stats().Buckets)
			}
		}
	})
	for c := range callers {
		wg.Go(func() {
			id := make([]byte, 0, 32)
			for i := from + c; i < to; i += callers {
				id = strconv.AppendInt(append(id[:0], "198.51.100.7-"...), int64(i), 10)
				_, _ = l.CheckRate(string(id), 1000, 5) // ErrFull is counted in the Stats
			}
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()
}

func liveHeap() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func peakRSS() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var n int64
			_, _ = fmt.Sscan(kb, &n)
			return n << 10
		}
	}
	return 0
}

// child returns the test binary to run: this one, or one built without the race detector, which
// needs many times the memory and time.
var child = sync.OnceValues(func() (string, error) {
	if !slow.Race {
		return os.Args[0], nil
	}
	dir, err := os.MkdirTemp("", "weir-verify")
	if err != nil {
		return "", err
	}
	childDir = dir
	path := filepath.Join(dir, "verify.test")
	if out, err := exec.Command("go", "test", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// childDir is the directory in which child built it.
var childDir string

func inChild(t *testing.T, f flood) flood {
	path, err := child()
	require.NoError(t, err)
	job, err := json.Marshal(f)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = append(os.Environ(), childJob+"="+string(job)), &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(out, &f), "%s", out)
	require.Empty(t, f.Err)
	return f
}

const mib = 1 << 20

// Five million IDs pass through a limiter with room for one million. The capacity is never
// exceeded, the memory is bounded, and it is freed afterwards.
func TestMemoryIsBounded(t *testing.T) {
	slow.Test(t)
	f := inChild(t, flood{IDs: slow.N(0, 2_500_000, 100_000_000), Room: 1_000_000, Cycles: 1})
	full := f.Full[0] - f.Before[0]
	t.Logf("%d IDs: at most %d buckets, peak RSS %d MiB, live heap %d MiB full (%d B for each "+
		"bucket), "+
		"%.1f MiB after; %d admitted, %d ErrFull",
		f.IDs, f.MostBuckets, f.PeakRSS/mib, full/mib, full/int64(f.Room),
		float64(f.After[0]-f.Before[0])/mib,
		f.Admitted, f.Refused)
	assert.LessOrEqual(t, f.MostBuckets, f.Room)
	assert.Equal(t, f.Room, f.MostBuckets, "the table was never full")
	assert.EqualValues(t, f.IDs, f.Admitted+f.Refused)
	assert.EqualValues(t, f.IDs*4/5, f.Admitted, "every window admits as many as there is room for")
	assert.LessOrEqual(t, full/int64(f.Room), int64(200), "bytes for each bucket")
	assert.LessOrEqual(t, f.After[0]-f.Before[0], full/10, "the memory was not freed")
	assert.LessOrEqual(t, f.PeakRSS, int64(350*mib))
}

func TestMemoryIsReturned(t *testing.T) {
	slow.Test(t)
	ids := slow.N(0, 100_000, 200_000)
	f := inChild(t, flood{IDs: ids, Room: ids, Cycles: slow.N(0, 3, 20)})
	for i := range f.After {
		assert.LessOrEqual(t, f.After[i]-f.Before[0], (f.Full[i]-f.Before[0])/10, "cycle %d", i)
	}
	last := f.After[len(f.After)-1] - f.After[0]
	t.Logf("%d cycles: full %d MiB, after the first %d KiB, after the last %+d KiB more",
		f.Cycles, (f.Full[0]-f.Before[0])/mib, (f.After[0]-f.Before[0])>>10, last>>10)
	assert.Less(t, last, (f.Full[0]-f.Before[0])/50, "the memory grows with each cycle")
}

// The control: a plain map keeps the memory of deleted entries.
func TestMemoryControlPlainMapKeepsIt(t *testing.T) {
	before := liveHeap()
	m := map[string]int64{}
	for i := range 200_000 {
		m[strconv.Itoa(i)] = 1
	}
	full := liveHeap() - before
	clear(m)
	assert.Greater(t, liveHeap()-before, full/10)
	runtime.KeepAlive(m)
}
