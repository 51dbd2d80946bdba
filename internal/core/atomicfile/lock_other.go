//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

func tryLock(*os.File) error { return errors.ErrUnsupported }

// lock relies on Windows, which does not remove a file that is open.
func lock(name string) (unlock func(), err error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = f.Close()
		_ = os.Remove(name)
	}, nil
}

func removeIfAbandoned(temp string) { removeIfOld(temp) }

// rename closes f and gives it its name. Windows does not rename an open file.
func rename(f *os.File, name string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
