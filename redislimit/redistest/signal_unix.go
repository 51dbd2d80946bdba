//go:build unix

package redistest

import "syscall"

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// setQueue sets the length of a listener's queue.
func setQueue(fd uintptr, queue int) { _ = syscall.Listen(int(fd), queue) }
