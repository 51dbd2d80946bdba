//go:build !unix

package redistest

import "syscall"

// No signal stops a process here: Freeze and Thaw fail the test.
const (
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)

// setQueue does nothing: partitions are for systems like Unix.
func setQueue(uintptr, int) {}
