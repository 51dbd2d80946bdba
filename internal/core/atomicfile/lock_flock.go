//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"os"
	"syscall"
)

// tryLock locks f until it is closed. It returns ErrLocked if the file is locked through another
// descriptor, and another error if its file system has no locks.
func tryLock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrLocked
		default:
			return err
		}
	}
}

func lock(name string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if tryLock(f) == ErrLocked {
			_ = f.Close()
			return nil, ErrLocked
		}
		if isAt(f, name) {
			return func() {
				_ = os.Remove(name) // while it is locked, so that it is not another's
				_ = f.Close()
			}, nil
		}
		_ = f.Close() // The holder removed it after we opened it. Try again.
	}
}

// isAt reports whether name is still the name of f.
func isAt(f *os.File, name string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(opened, named)
}

// removeIfAbandoned removes a temporary file that no process has locked.
func removeIfAbandoned(temp string) {
	f, err := os.OpenFile(temp, os.O_RDWR, 0) // on NFS only a writer can lock
	if err != nil {
		return
	}
	defer f.Close()
	switch tryLock(f) {
	case nil:
		_ = os.Remove(temp) // while it is locked: its writer may be about to lock it
	case ErrLocked:
	default:
		removeIfOld(temp)
	}
}

// rename gives f its name and closes it. It is locked until it has the name, so that no other
// Replace takes it for abandoned.
func rename(f *os.File, name string) error {
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	_ = f.Close() // it has been synced
	return nil
}
