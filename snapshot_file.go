package weir

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weirgo/weir/internal/core/atomicfile"
)

// SaveFile saves to the named file, for [Limiter.LoadFile] in the next process. The file is a whole
// snapshot at any time, also after a crash: SaveFile writes to a temporary file in the same
// directory, syncs that to disk, renames it, and syncs the directory where the system allows it.
// Only this user can read the file, of mode 0600, since it holds the IDs. A symbolic link is
// replaced, not followed.
//
// If SaveFile fails, the previous file is as it was and no temporary file is left. The error names
// the file and wraps that of the system. On Windows it fails while another program has the file
// open. A process that is killed leaves its temporary file, name.saving- and a number, which the
// next SaveFile of that name removes; on systems without flock(2), such as Windows, once it is a
// minute old.
//
// It is safe beside all other calls, and after Close. Concurrent calls on one limiter run one after
// another. Those of several limiters or processes on one file each write a whole one, and the last
// replaces the others: give each limiter a file of its own. It costs what [Limiter.Save] does, and
// waits for the disk.
func (l *Limiter) SaveFile(name string) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	return atomicfile.Replace(name, l.Save)
}

// LoadFile loads the named file, as [Limiter.Load] does. If the file does not exist, as at the
// first start, the error satisfies errors.Is(err, fs.ErrNotExist), and the caller decides. The
// other errors are those of the system and of Load. Each names the file. A file that was not loaded
// stays as it is until SaveFile replaces it: to keep it, rename it first.
func (l *Limiter) LoadFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := l.Load(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Checkpoint calls [Limiter.SaveFile] each time interval has passed, until ctx ends or the limiter
// is closed, and then once more. A process that is killed loses what was counted since the last
// save. An interval of 0 or less is a minute. Checkpoint blocks: start it in a goroutine, and wait
// for it before the process ends:
//
//	var saving sync.WaitGroup
//	saving.Go(func() {
//		err := limiter.Checkpoint(ctx, "counts", time.Minute, func(err error) { log.Print(err) })
//		if err != nil { … } // the counts since the last save are lost
//	})
//
// A save that fails leaves the previous file and does not end Checkpoint: failed, unless it is nil,
// gets the error, and the next save follows after another interval. The error of the last save is
// returned instead; it is nil if the file holds the counts at the end, also when ctx has ended.
// Each failure is reported once. To know at the start whether the file can be written, call
// SaveFile.
func (l *Limiter) Checkpoint(
	ctx context.Context, name string, interval time.Duration, failed func(error),
) error {
	if interval <= 0 {
		interval = time.Minute
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := l.SaveFile(name); err != nil && failed != nil {
				failed(err)
			}
		case <-ctx.Done():
			return l.SaveFile(name)
		case <-l.janitor.stop:
			return l.SaveFile(name)
		}
	}
}
