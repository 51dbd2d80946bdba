// Package atomicfile replaces files so that a reader, or a crash, finds the old contents or the new
// ones and never a part, and locks a file against other processes.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Replace makes name a file with what write writes. The data goes to a temporary file in the same
// directory, which is synced and then renamed; the directory is synced where the system allows it.
// The mode is 0600. A symbolic link is replaced, not followed.
//
// If Replace fails, the previous file is as it was and no temporary file is left. The error names
// the file, not the temporary one, and wraps that of write or of the system. On Windows it fails
// while another program has the file open. Concurrent calls are safe, also from several processes:
// the last rename wins.
//
// A process that is killed leaves its temporary file, and the next Replace of that name removes it.
// Each temporary file has a new name, so that two writers never share one, and is locked while its
// writer lives. On systems and file systems without flock(2), Replace instead removes those that
// have not been written to for a minute.
func Replace(name string, write func(io.Writer) error) (err error) {
	removeAbandoned(name)
	f, err := createTemp(name)
	if err != nil {
		return unwritable(name, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("%s cannot be written: %w", name, cause(err))
		}
	}()
	err = write(f)
	if err != nil {
		return err
	}
	err = f.Sync()
	if err != nil {
		return err
	}
	err = rename(f, name)
	if err != nil {
		return err
	}
	syncDir(filepath.Dir(name))
	return nil
}

// syncDir makes a rename durable. Errors are ignored: the file has been replaced and is whole, and
// Windows and some file systems do not sync directories.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// tempInfix stands between the name of a file and the number of a temporary one.
const tempInfix = ".saving-"

// createTemp creates a temporary file for name and locks it, where there are locks.
func createTemp(name string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+tempInfix+"*")
		if err != nil {
			return nil, err
		}
		if tryLock(f) != ErrLocked {
			_, err = os.Lstat(f.Name())
			if !errors.Is(err, fs.ErrNotExist) {
				return f, nil
			}
		}
		_ = f.Close() // Another Replace took it for abandoned before it was locked. Try again.
		_ = os.Remove(f.Name())
	}
}

// removeAbandoned removes the temporary files for name whose writers have died.
func removeAbandoned(name string) {
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, n := range names {
		number, ok := strings.CutPrefix(n, filepath.Base(name)+tempInfix)
		if ok && number != "" && strings.Trim(number, "0123456789") == "" {
			removeIfAbandoned(filepath.Join(filepath.Dir(name), n))
		}
	}
}

// removeIfOld removes a temporary file that has not been written to for a minute. If its writer
// lives after all, its rename fails, and the previous file stays.
func removeIfOld(temp string) {
	if info, err := os.Lstat(temp); err == nil && time.Since(info.ModTime()) > time.Minute {
		_ = os.Remove(temp)
	}
}

func unwritable(name string, err error) error {
	return fmt.Errorf("%s cannot be written; its directory must exist, and this user must be able to "+
		"create files in it: %w", name, cause(err))
}

// cause returns the reason in err without the name of a temporary file.
func cause(err error) error {
	if e := new(fs.PathError); errors.As(err, &e) {
		return e.Err
	}
	if e := new(os.LinkError); errors.As(err, &e) {
		return e.Err
	}
	return err
}
