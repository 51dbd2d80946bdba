package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cloudflare/tableflip"
	"github.com/coreos/go-systemd/v22/activation"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/internal/core/atomicfile"
)

// succession is the proxy's: it takes the sockets that systemd, or the process before, has passed,
// and passes them to the next process.
type succession struct {
	passed map[string]net.Listener // by systemd, by the flag
	flip   *tableflip.Upgrader     // nil: the system has no such thing, and sockets are not passed on
	ready  func() error
}

// inOrder are the flags of sockets that systemd gives no name, or another one.
var inOrder = []string{"listen", "admin"}

// newSuccession takes what was passed. pidFile is written when this process takes over; empty:
// none.
func newSuccession(pidFile string, log *slog.Logger) (*succession, error) {
	s := &succession{passed: make(map[string]net.Listener)}
	for i, file := range activation.Files(true) {
		flag := file.Name()
		if flag != "listen" && flag != "admin" {
			if i >= len(inOrder) {
				return nil, fmt.Errorf("systemd passes the socket %q, and there are two: name one "+
					"FileDescriptorName=listen and the other FileDescriptorName=admin", flag)
			}
			flag = inOrder[i]
		}
		if s.passed[flag] != nil {
			return nil, fmt.Errorf("systemd passes two sockets for --%s: give each another "+
				"FileDescriptorName, listen and admin, or none", flag)
		}
		l, err := net.FileListener(file)
		_ = file.Close() // l has its own
		if err != nil {
			return nil, fmt.Errorf("the socket %q of systemd: %w", flag, err)
		}
		if _, ok := l.(*net.TCPListener); !ok {
			return nil, fmt.Errorf("the socket %q of systemd is at %s: want one of TCP, "+
				"ListenStream=PORT", flag, l.Addr())
		}
		s.passed[flag] = l
	}
	var err error
	s.flip, err = upgrader()
	if err != nil && !errors.Is(err, tableflip.ErrNotSupported) {
		return nil, err
	}
	s.ready = sync.OnceValue(func() error {
		if err := checkPID(pidFile); err != nil {
			return err
		}
		if s.flip != nil {
			if err := s.flip.Ready(); err != nil {
				return err
			}
		}
		if err := writePID(pidFile); err != nil { // no other process serves: go on
			log.Error("the number of this process is not written", "error", err.Error())
		}
		return nil
	})
	return s, nil
}

// upgrader is the process's: there can be one.
var upgrader = sync.OnceValues(func() (*tableflip.Upgrader, error) {
	return tableflip.New(tableflip.Options{})
})

// checkPID returns an error if the file cannot be written.
func checkPID(file string) error {
	if file == "" {
		return nil
	}
	if at, err := os.Stat(file); err == nil && at.IsDir() {
		return fmt.Errorf("--pid-file %s is a directory: want a file", file)
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".check-*")
	if err != nil {
		return fmt.Errorf("--pid-file %s cannot be written: %w", file, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func writePID(file string) error {
	if file == "" {
		return nil
	}
	return atomicfile.Replace(file, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, os.Getpid())
		return err
	})
}

// Listen implements proxy.Succession.
func (s *succession) Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	listen := func(string, string) (net.Listener, error) {
		if l := s.passed[flag]; l != nil {
			return l, nil
		}
		return live.Listen(ctx, flag, addr)
	}
	if s.flip == nil {
		return listen("tcp", addr)
	}
	return s.flip.ListenWithCallback("tcp", flag+" "+addr, listen)
}

// Succeeds implements proxy.Succession.
func (s *succession) Succeeds() bool { return s.flip != nil && s.flip.HasParent() }

// Ready implements proxy.Succession.
func (s *succession) Ready() error { return s.ready() }

// Leave implements proxy.Succession.
func (s *succession) Leave() <-chan struct{} {
	if s.flip == nil {
		return nil
	}
	return s.flip.Exit()
}

// Stop implements proxy.Succession.
func (s *succession) Stop() {
	if s.flip != nil {
		s.flip.Stop()
		<-s.flip.Exit() // its copies of the sockets are closed
	}
}

// handOver starts the next process, and returns when it is ready. It fails, and this one goes on,
// if the next one fails before.
func (s *succession) handOver() error {
	if s.flip == nil {
		return errors.New("this system cannot pass sockets on: stop the process and start it again")
	}
	if !s.Succeeds() {
		if err := endsWithFirst(os.Getpid(), os.Getppid(), os.Getenv); err != nil {
			return err
		}
	}
	return s.flip.Upgrade()
}

// endsWithFirst returns an error if the first process, this one, ends its successors with itself:
// those of a container, or of a systemd unit, whose main process it is. systemd before 248 sets no
// SYSTEMD_EXEC_PID.
func endsWithFirst(pid, parent int, getenv func(string) string) error {
	if pid == 1 {
		return errors.New("this is process 1 of a container, which ends with it: replace the container")
	}
	main := getenv("SYSTEMD_EXEC_PID")
	if main == strconv.Itoa(pid) || main == "" && parent == 1 && getenv("INVOCATION_ID") != "" {
		return errors.New("this is the main process of a systemd unit, which ends with it: use " +
			"systemctl restart; the sockets of a socket unit stay open")
	}
	return nil
}
