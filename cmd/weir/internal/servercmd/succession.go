package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/cloudflare/tableflip"
	"github.com/coreos/go-systemd/v22/activation"

	"github.com/weirgo/weir/cmd/weir/internal/live"
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

// newSuccession takes what was passed. pidFile is written when this process is ready; empty: none.
func newSuccession(pidFile string) (*succession, error) {
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
		if pidFile != "" {
			if err := writePID(pidFile); err != nil {
				return err
			}
		}
		if s.flip == nil {
			return nil
		}
		return s.flip.Ready()
	})
	return s, nil
}

// upgrader is the process's: there can be one.
var upgrader = sync.OnceValues(func() (*tableflip.Upgrader, error) {
	return tableflip.New(tableflip.Options{})
})

func writePID(file string) error {
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

// handOver starts the next process, and returns when it is ready. It fails, and this one goes on, if
// the next one fails before.
func (s *succession) handOver() error {
	if s.flip == nil {
		return errors.New("this system cannot pass sockets on: stop the process and start it again")
	}
	return s.flip.Upgrade()
}
