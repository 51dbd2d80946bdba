package proxy

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/internal/core/atomicfile"
)

// Succession passes the sockets from one process to the next, which serves on them while this one
// finishes its requests.
type Succession interface {
	// Listen returns the socket of a flag's address: the one that was passed to this process, or a
	// new one.
	Listen(ctx context.Context, flag, addr string) (net.Listener, error)

	// Succeeds reports whether there is a process before this one.
	Succeeds() bool

	// Ready says that this process is about to serve, so that the one before may leave. It fails if
	// that cannot be said.
	Ready() error

	// Leave is closed when the next process is ready.
	Leave() <-chan struct{}

	// Stop refuses a next process from now on, and closes what would be passed to it. Afterwards a
	// socket accepts until its listener is closed.
	Stop()
}

// alone is the Succession of a process that opens its sockets and has no successor.
type alone struct{}

func (alone) Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	return live.Listen(ctx, flag, addr)
}
func (alone) Succeeds() bool         { return false }
func (alone) Ready() error           { return nil }
func (alone) Leave() <-chan struct{} { return nil }
func (alone) Stop()                  {}

// stateWithin bounds how long a process waits for the counts of the one before.
const stateWithin = time.Minute

// retryLocked opens a state file as soon as the process before has let it go.
func retryLocked(ctx context.Context, open func() error) error {
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	for {
		err := open()
		if !errors.Is(err, atomicfile.ErrLocked) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
