package proxy

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/weirgo/weir"
)

// stateFile stores the counts of a limiter over a restart. A file that could not be loaded is not
// overwritten: nothing is saved until it is moved away.
type stateFile struct {
	name    string
	limiter *weir.Limiter
	log     *slog.Logger
	bad     error // why the existing file was not loaded
}

// stateEvery is the interval between saves. A process that is killed loses the counts since the
// last one.
const stateEvery = time.Minute

// openState loads the file, if it exists, and saves it again, so that a file that cannot be written
// is an error at the start.
func openState(name string, l *weir.Limiter, log *slog.Logger) (*stateFile, error) {
	s := &stateFile{name: name, limiter: l, log: log}
	s.bad = s.load()
	return s, s.save()
}

// load loads the file. A file that exists and is invalid is an error.
func (s *stateFile) load() error {
	f, err := os.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(s.limiter.Load(f), f.Close())
	}
	if errors.Is(err, weir.ErrFull) { // entries that fit were loaded
		s.log.Warn("state loaded in part", "file", s.name, "error", err.Error())
		return nil
	}
	return err
}

// save replaces the file atomically, unless an invalid file is in the way.
func (s *stateFile) save() error {
	if s.bad != nil {
		if _, err := os.Lstat(s.name); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		s.log.Info("state is saved again", "file", s.name)
		s.bad = nil
	}
	return replaceFile(s.name, s.limiter.Save)
}

// run saves the state every stateEvery and once more when ctx has ended, and then closes done.
func (s *stateFile) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	if s.bad != nil {
		s.log.Error("state not loaded; the file is kept, and nothing is saved while it is there",
			"file", s.name, "error", s.bad.Error())
	}
	ticker := time.NewTicker(stateEvery)
	defer ticker.Stop()
	for last := false; !last; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last = true
		}
		if err := s.save(); err != nil {
			s.log.Error("state not saved", "file", s.name, "error", err.Error())
		}
	}
}

// keepState saves the state while the proxy runs. The returned function saves it for the last time.
func (p *Proxy) keepState() (stop func()) {
	if p.state == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go p.state.run(ctx, done)
	return func() {
		cancel()
		<-done
	}
}
