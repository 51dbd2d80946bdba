//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
)

// execute runs a program and ends with its exit code. It returns only if it fails.
func execute(path string, args []string) error {
	// The console sends it to both: wait for the other.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	cmd := exec.Command(path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if err == nil || errors.As(err, new(*exec.ExitError)) {
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return err
}
