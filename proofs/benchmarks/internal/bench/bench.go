// Package bench holds what the programs that measure share: medians over rounds, the CPU time of
// this process, what their reports say of the machine, and where these go.
package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Main calls run, and ends the program called name with status 1 if it fails.
func Main(name string, run func() error) {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Publish prints a report, and writes it to a file unless its name is empty.
func Publish(report []byte, file string) error {
	fmt.Printf("%s", report)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, report, 0o644)
}

// Median returns the median of at least one value; of an even number the larger of the two.
func Median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// MedianOf returns the median of a figure of at least one sample.
func MedianOf[S any](samples []S, figure func(S) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return Median(values)
}

// Ratio returns the median of the ratios of a to b within a round, where other load on the machine
// is the same for both.
func Ratio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}

// Verdict says whether a bar was met.
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// CPUTime returns the CPU time of this process. On one processor it is the time that a measurement
// takes on an idle machine; unlike wall time, it does not include the work of other processes.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Machine returns today's date, Go, and the processor.
func Machine() string {
	model := "CPU"
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %s, %s/%s, %d × %s", time.Now().UTC().Format(time.DateOnly),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model)
}

// Load returns the machine's load average of the last minute.
func Load() string {
	if first, _, ok := strings.Cut(read("/proc/loadavg"), " "); ok {
		return first
	}
	return "unknown"
}

func read(file string) string {
	text, _ := os.ReadFile(file) // "" if there is no such file
	return string(text)
}

// Version returns the version of a module in this binary, or "this tree".
func Version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module && d.Version != "(devel)" {
				return d.Version
			}
		}
	}
	return "this tree"
}
