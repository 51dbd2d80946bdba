//go:build unix

package servercmd

import "syscall"

// onHandOver calls f on each SIGUSR2, until the returned function is called. f logs its error.
func onHandOver(f func() error) (stop func()) { return onSignal(syscall.SIGUSR2, f) }
