//go:build unix

package main

import (
	"os"
	"syscall"
)

// execute runs a program in place of this process, whose id, files and signals it gets. It returns
// only if it fails.
func execute(path string, args []string) error {
	return syscall.Exec(path, append([]string{path}, args...), os.Environ())
}
