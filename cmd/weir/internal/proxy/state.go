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

// stateFile keeps the counts of a limiter over a restart. A file that could not be loaded is kept:
// nothing is saved until somebody has moved it away.
type stateFile struct {
	name    string
	limiter *weir.Limiter
	log     *slog.Logger
	bad     error // why the file that is there was not loaded
}

// stateEvery is how often the state is saved. A process that is killed forgets what it counted
// since.
const stateEvery = time.Minute

// openState loads the file, if there is one, and saves it again: so a file that cannot be written
// is an error at the start.
func openState(name string, l *weir.Limiter, log *slog.Logger) (*stateFile, error) {
	s := &stateFile{name: name, limiter: l, log: log}
	s.bad = s.load()
	return s, s.save()
}

// load returns why the file is a bad one, or nil.
func (s *stateFile) load() error {
	f, err := os.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(s.limiter.Load(f), f.Close())
	}
	if errors.Is(err, weir.ErrFull) { // what there is room for was loaded
		s.log.Warn("state loaded in part", "file", s.name, "error", err.Error())
		return nil
	}
	return err
}

// save replaces the file, at once and whole, unless it is a bad one.
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

// run saves the state again and again, and once more when ctx has ended. done is closed then.
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

// keepState saves the state while the proxy runs. The function that it returns saves it for the
// last time.
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
