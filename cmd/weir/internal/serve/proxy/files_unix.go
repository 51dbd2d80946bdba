//go:build unix

package proxy

import "syscall"

// maxFiles returns how many files this process may have open, or 0 if that is unknown. The runtime
// has raised the soft limit to the hard one.
func maxFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), 1<<30)) //nolint:unconvert // signed on FreeBSD
}
