package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// row is a task and its measurements, one for each round.
type row struct {
	name, file        string
	command           []string  // run with file as its last argument
	wall, cpu, memory []float64 // seconds, seconds, megabytes
}

// measure runs the task once, in its own process.
func (r *row) measure() error {
	cmd := exec.CommandContext(context.Background(), r.command[0],
		append(slices.Clone(r.command[1:]), r.file)...)
	cmd.Stderr = os.Stderr
	start := time.Now()
	text, err := cmd.Output()
	r.wall = append(r.wall, time.Since(start).Seconds())
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if want := fmt.Sprintf(`"requests": %d,`, *lines); !strings.Contains(string(text), want) &&
		!strings.HasPrefix(string(text), fmt.Sprint(*lines, " ")) {
		return fmt.Errorf("%s: it does not say that there are %d requests: %.200s", r.name, *lines, text)
	}
	r.cpu = append(r.cpu, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	r.memory = append(r.memory, float64(used.Maxrss)/1000) // kilobytes, as Linux counts them
	return nil
}
