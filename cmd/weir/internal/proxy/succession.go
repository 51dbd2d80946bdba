package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/live"
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

// succeed has the process before leave, and takes over from it: the counts, once it has decided its
// last request, and the deny list. Connections wait in the queue of the socket meanwhile. If it
// fails, the process before goes on.
func (p *Proxy) succeed(ctx context.Context) error {
	next := p.cfg.Succession
	var held error // why the state file is not open yet
	if next.Succeeds() && p.cfg.StateFile != "" {
		held = p.openState()
		if held != nil && !errors.Is(held, atomicfile.ErrLocked) {
			return held
		}
	}
	if err := next.Ready(); err != nil {
		return err
	}
	// Nobody else serves from here on, so that no error ends this process.
	if held != nil {
		if err := retryLocked(ctx, p.openState); err != nil {
			p.cfg.Log.Error("serving without the counts of the process before, and saving none",
				"file", p.cfg.StateFile, "error", err.Error())
		}
	}
	if next.Succeeds() && p.cfg.DenyFile != "" { // it may have changed since New
		if err := p.denied.load(p.current.Load().cfg.Deny, p.cfg.Log); err != nil {
			p.cfg.Log.Error("the deny list is as it was at the start", "error", err.Error())
		}
	}
	return nil
}

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

// lastDecisions bounds how long the counts wait for requests that came with the end of linger.
const lastDecisions = 200 * time.Millisecond

// leave is drain for a process whose successor is ready: no socket is closed that the successor has
// not, and the counts are saved and let go as soon as no connection can bring a new request: new
// ones are closed then, but for linger if their first request has arrived in part. What a request
// that lasts longer counts at its end is not in them.
func (p *Proxy) leave(requests context.Context, front, back *server, letGo, cut func()) error {
	p = p.current.Load()
	p.stopping.Store(true) // responses close their connections
	p.cfg.Log.Info("handing over", "in_flight", p.open.Load())
	deadline, cancel := context.WithTimeout(requests, p.cfg.Drain)
	defer cancel()
	front.conns.refuse()
	if back.conns != nil {
		back.conns.refuse()
		go func() { _ = back.Shutdown(deadline) }() // Run closes what is left
	}
	front.conns.awaitNone(deadline, linger)
	front.conns.endNew(deadline, linger)
	ended := make(chan error, 1)
	go func() { ended <- front.Shutdown(deadline) }()
	var err error
	select {
	case err = <-ended:
		letGo()
	case <-time.After(lastDecisions):
		letGo()
		err = <-ended
	}
	return p.ended(deadline, err, cut)
}

// ended waits for the rest of the requests, and says how many are cut off. err is that of the
// server's Shutdown.
func (p *Proxy) ended(deadline context.Context, err error, cut func()) error {
	if err == nil && p.finished(deadline) {
		p.cfg.Log.Info("stopped")
		return nil
	}
	left := p.open.Load()
	cut()
	p.cfg.Log.Warn("stopped", "cut_off", left)
	if left == 0 {
		return nil // only connections without a request were left
	}
	return fmt.Errorf("%d requests were still in flight after %v", left, p.cfg.Drain)
}
