package atomicfile

import (
	"errors"
	"fmt"
)

// ErrLocked: the lock is held, by another process or by this one.
var ErrLocked = errors.New("in use by another process")

// Lock locks name until unlock is called or the process ends, however it ends. The lock is that of
// a file beside it, name.lock, since Replace exchanges the file itself; unlock removes it, and a
// process that is killed leaves it, unlocked.
//
// Lock fails with [ErrLocked] if the lock is held, and if it cannot create the file. File systems
// without locks, and systems other than Windows and those with flock(2), refuse nobody.
func Lock(name string) (unlock func(), err error) {
	unlock, err = lock(name + ".lock")
	switch {
	case errors.Is(err, ErrLocked):
		return nil, fmt.Errorf("%s is %w", name, err)
	case err != nil:
		return nil, unwritable(name, err)
	}
	return unlock, nil
}
