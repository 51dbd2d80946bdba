package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/atomicfile"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/windows"
)

// ErrSnapshot: Load was given no snapshot, or a damaged one, or one of the future.
var ErrSnapshot = errors.New("weir: bad snapshot")

// Save writes the present counts to w, for Load in the next process: the counts of every strategy
// but those who wait in a LeakyBucket. Each bucket that has not expired takes 15 to 40 bytes and
// its ID. Windows are aligned to the Unix epoch, so the counts stay valid as long as the wall clock
// does.
//
// Save is safe beside all other calls, and after Close. The counts are not all of one instant: an
// admission while Save runs may be in the snapshot or not. Save holds no lock while writing. It
// fails with the error of w; then w has no snapshot.
func (l *Limiter) Save(w io.Writer) error { return engine.Save(w, &l.stores) }

// Load counts the snapshot of a Save. A caller that has no count gets the saved one. The count of
// one that has is raised, as by [OpCatchUp], never lowered, and the two are not added: to load one
// snapshot twice is to load it once. Windows that have ended are left out. Bucket.Denied and
// Created begin anew, and Stats counts nothing of the snapshot.
//
// Load reads r to its end before changing anything, and holds the whole snapshot in memory. It
// fails with [ErrSnapshot] for one that Save did not write, or not to the end, or more than a
// minute after the limiter's clock; with the error of r; with [ErrClosed]: then nothing has
// changed. Load fails with [ErrFull] if there was no room for some of the buckets: it takes those
// first that have counted most, of each strategy, which are the nearest to their limits. It fails
// with [ErrLimit] if some are of limits that the limiter cannot keep apart from its own: see
// [Limit]. Load is safe beside all other calls.
func (l *Limiter) Load(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("weir: reading a snapshot: %w", err)
	}
	if l.closed.Load() {
		return l.fail(ErrClosed)
	}
	in := &engine.Loader{Stores: &l.stores,
		Series: func(name windows.SeriesName) (*windows.Series, error) { return l.named(name, nil) }}
	records, saved, err := in.Read(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if now := l.clock.Read(); saved > arith.Add(now, engine.MaxAhead) {
		return fmt.Errorf("%w: it is of %v, and the clock shows %v",
			ErrSnapshot, l.clock.Time(saved), l.clock.Time(now))
	}
	if int64(len(records)) > l.room.Max-l.room.Used() {
		in.MostCountedFirst(records)
	}
	full, unnamed := 0, 0
	for _, record := range records {
		switch err := in.Load(record); {
		case errors.Is(err, ErrLimit):
			unnamed++
		case err != nil:
			full++
		}
	}
	if full > 0 {
		err = fmt.Errorf("%w: no room for %d of %d saved buckets", l.fail(ErrFull), full, len(records))
	}
	if unnamed > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d of %d saved buckets are of further limits",
			l.fail(ErrLimit), unnamed, len(records)))
	}
	return err
}

// SaveFile saves to the named file, for [Limiter.LoadFile] in the next process. The file is a whole
// snapshot at any time, also after a crash: SaveFile writes to a temporary file in the same
// directory, syncs that to disk, renames it, and syncs the directory where the system allows it.
// Only this user can read the file, of mode 0600, since it holds the IDs. A symbolic link is
// replaced, not followed.
//
// If SaveFile fails, the previous file is as it was and no temporary file is left. The error names
// the file and wraps the system's. On Windows SaveFile fails while another program has the file
// open. A process that is killed leaves its temporary file, name.saving- and a number, which the
// next SaveFile of that name removes; on systems without flock(2), such as Windows, once a minute
// old.
//
// SaveFile is safe beside all other calls, and after Close. Concurrent calls on one limiter run one
// after another. Calls of several limiters or processes on one file each write a whole one, and the
// last replaces the others: give each limiter a file of its own. Each call costs as much as
// [Limiter.Save], and waits for the disk.
func (l *Limiter) SaveFile(name string) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	return atomicfile.Replace(name, l.Save)
}

// LoadFile loads the named file, as [Limiter.Load] does. If the file does not exist, as at the
// first start, the error satisfies errors.Is(err, fs.ErrNotExist), and the caller decides. The
// other errors are the system's and Load's. Each names the file. A file that was not loaded stays
// unchanged until SaveFile replaces it: to keep such a file, rename it first.
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
// is closed, and then once more. A process that is killed loses the counts since the last
// save. An interval of 0 or less is a minute. Checkpoint blocks: start it in a goroutine, and wait
// for it before the process ends:
//
//	var saving sync.WaitGroup
//	saving.Go(func() {
//		err := limiter.Checkpoint(ctx, "counts", time.Minute, func(err error) { log.Print(err) })
//		if err != nil { … } // the counts since the last save are lost
//	})
//
// A save that fails leaves the previous file and does not end Checkpoint: failed, unless nil, gets
// the error, and the next save follows after another interval. The error of the last save is
// returned instead, and is nil if the file holds the counts at the end, also when ctx has ended.
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
