package proxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/atomicfile"
)

// stateFile stores the counts of a limiter over a restart. It is locked, since two processes on one
// file would replace each other's counts. A file that could not be loaded is not overwritten:
// nothing is saved until it is moved away.
type stateFile struct {
	name    string
	limiter *weir.Limiter
	log     *slog.Logger
	bad     error  // why the existing file was not loaded
	unlock  func() // lets another process use the file
}

// stateEvery is the interval between saves. A process that is killed loses the counts since the
// last one.
const stateEvery = time.Minute

// openState locks the file, loads it, if it exists, and saves it again, so that a file that cannot
// be written is an error at the start.
func openState(name string, l *weir.Limiter, log *slog.Logger) (*stateFile, error) {
	unlock, err := atomicfile.Lock(name)
	if err != nil {
		return nil, err
	}
	s := &stateFile{name: name, limiter: l, log: log, unlock: unlock}
	if s.bad = s.load(); s.bad == nil {
		err = l.SaveFile(name)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return s, nil
}

// load loads the file. A file that exists and is invalid is an error.
func (s *stateFile) load() error {
	err := s.limiter.LoadFile(s.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, weir.ErrFull): // entries that fit were loaded
		s.log.Warn("state loaded in part", "file", s.name, "error", err.Error())
		return nil
	}
	return err
}

// run saves the state every stateEvery and once more when ctx has ended.
func (s *stateFile) run(ctx context.Context) {
	if s.bad != nil {
		s.log.Error("state not loaded; the file is kept, and nothing is saved while it is there",
			"file", s.name, "error", s.bad.Error())
		if !s.movedAway(ctx) {
			return
		}
		s.log.Info("state is saved again", "file", s.name)
		s.report(s.limiter.SaveFile(s.name))
	}
	s.report(s.limiter.Checkpoint(ctx, s.name, stateEvery, s.report))
}

// movedAway waits until the invalid file is not there. It returns false if it still is when ctx has
// ended.
func (s *stateFile) movedAway(ctx context.Context) bool {
	for {
		if _, err := os.Lstat(s.name); errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		select {
		case <-time.After(stateEvery):
		case <-ctx.Done():
		}
	}
}

// report logs the error of a save.
func (s *stateFile) report(err error) {
	if err != nil {
		s.log.Error("state not saved", "file", s.name, "error", err.Error())
	}
}
