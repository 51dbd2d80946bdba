package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is a task and its measurements, one for each round.
type row struct {
	name, task, file  string
	wall, cpu, memory []float64 // seconds, seconds, megabytes
}

// measure runs the task once, in its own process.
func (r *row) measure() error {
	cmd := exec.CommandContext(context.Background(), os.Args[0], "-task", r.task, "-callers",
		fmt.Sprint(*callers), r.file)
	cmd.Stderr = os.Stderr
	start := time.Now()
	text, err := cmd.Output()
	r.wall = append(r.wall, time.Since(start).Seconds())
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	var requests int
	var peak float64
	if _, err := fmt.Sscan(string(text), &requests, &peak); err != nil || requests != *lines {
		return fmt.Errorf("%s: %q, want %d requests and the memory: %w", r.name, text, *lines, err)
	}
	r.cpu = append(r.cpu, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	r.memory = append(r.memory, peak/1000)
	return nil
}

// peakMemory returns the peak memory of this process, in kilobytes, as Linux counts it. The parent
// cannot ask for it: the child's figure would include the parent's memory.
func peakMemory() (kilobytes int) {
	text, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &kilobytes)
	}
	return kilobytes
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// ratio returns the median of the ratios within a round.
func ratio(a, b []float64) float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return median(all)
}

func machine() string {
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("on %s with %s, %d cores, load average %s", time.Now().UTC().Format(time.DateOnly),
		runtime.Version(), runtime.NumCPU(), load)
}
