package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/atomicfile"
)

// stateFile stores the counts of a limiter over a restart. It is locked, since two processes on one
// file would replace each other's counts.
type stateFile struct {
	name    string
	every   time.Duration // the interval between saves; 0: a minute
	limiter *weir.Limiter
	log     *slog.Logger
	unlock  func() // lets another process use the file

	bad   error  // why the file was not loaded
	aside string // the name that it has got
}

// openState locks the file, loads it, if it exists, and saves it again, so that a file that cannot
// be written is an error at the start.
func openState(
	name string, every time.Duration, l *weir.Limiter, log *slog.Logger,
) (*stateFile, error) {
	unlock, err := atomicfile.Lock(name)
	if err != nil {
		return nil, err
	}
	s := &stateFile{name: name, every: every, limiter: l, log: log, unlock: unlock}
	err = s.load()
	if err == nil {
		err = l.SaveFile(name)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return s, nil
}

// load loads the file. One that cannot be loaded, such as that of a clock that was ahead, gets
// another name: the counts of this process are saved from now on, and those of the file are kept.
func (s *stateFile) load() error {
	err := s.limiter.LoadFile(s.name)
	if err := s.forgetPlaces(); err != nil {
		return err
	}
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, weir.ErrFull), errors.Is(err, weir.ErrLimit): // the rest was loaded
		s.log.Warn("state loaded in part", "file", s.name, "error", err.Error())
		return nil
	}
	s.bad = err
	s.aside, err = setAside(s.name)
	if err != nil {
		return errors.Join(s.bad, err)
	}
	return nil
}

// forgetPlaces forgets what was in flight in the process before: its requests have ended, or end
// there, and nobody would give their places back here.
func (s *stateFile) forgetPlaces() error {
	return weir.Do(context.Background(), s.limiter.InFlight(), &weir.Op{Verb: weir.OpResetPrefix})
}

// setAside renames a file to the first name with a number that no file has. The caller holds its
// lock.
func setAside(name string) (aside string, err error) {
	for i := 1; ; i++ {
		aside = fmt.Sprint(name, ".bad-", i)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, os.Rename(name, aside)
		}
	}
}

// run saves the state every interval and once more when ctx has ended. A process that is killed
// loses the counts since the last save.
func (s *stateFile) run(ctx context.Context) {
	if s.bad != nil {
		s.log.Warn("state not loaded; the file is kept under another name", "file", s.name,
			"kept", s.aside, "error", s.bad.Error())
	}
	s.report(s.limiter.Checkpoint(ctx, s.name, s.every, s.report))
}

// report logs the error of a save.
func (s *stateFile) report(err error) {
	if err != nil {
		s.log.Error("state not saved", "file", s.name, "error", err.Error())
	}
}

// letGo saves the counts and lets another process use the file. save ends what saves them now and
// then, and saves them.
func (s *stateFile) letGo(save func()) {
	save()
	s.unlock()
	s.unlock = func() {}
}
