package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/deadline"
	"github.com/weirgo/weir/internal/safely"
)

// ErrNoAnswer reports that a server was not called, as its breaker is open, or that the call failed
// or was late.
var ErrNoAnswer = errors.New("no answer")

// ErrTimeout is the failure of a call, or a probe, that was late.
var ErrTimeout = errors.New("the server did not answer in time")

// attempts is how often a probe tries to get an answer within Timeout. A connection that died
// unnoticed costs one.
const attempts = 4

// ServerConfig is how a [Server] is called. The fields of a fallback.Config have the same meaning.
type ServerConfig struct {
	Config
	Timeout, ProbeTimeout time.Duration
	Prompt                bool                                // see fallback.Prompt
	Partition             func(key string) string             // nil: there is one part, ""
	IsDown                func(error) bool                    // nil: every error
	OnCall                func(took time.Duration, err error) // may be nil, as the next two
	OnChange              func(Change)
	OnError               func(error)
	Now                   func() time.Time

	// Refused reports whether an error is for the caller, and says nothing of the server.
	Refused func(error) bool

	// Probe makes an attempt of a probe, with a key of its own in the part that is probed: it begins
	// with Name or ends in it. Probe returns when the server was called, after what it took to connect
	// to it.
	Probe func(ctx context.Context, key string) (called time.Time, err error)
	Name  string // no other Server's
}

// Server is called as its breakers permit: each part of it has one. Make it with [NewServer]. It is
// safe for concurrent use.
type Server struct {
	cfg       ServerConfig
	one       *Breaker     // of the part "", which is most often all, and for parts beyond maxParts
	others    sync.Map     // of *Breaker, by part
	parts     atomic.Int64 // that have one of others
	deadlines deadline.Shared

	probes, failures, panics, shortDeadlines atomic.Uint64
}

// maxParts bounds the parts that have a breaker of their own.
const maxParts = 1024

// NewServer returns a Server whose breakers are closed.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Partition == nil {
		cfg.Partition = func(string) string { return "" }
	}
	return &Server{cfg: cfg, one: New(cfg.Config, "", cfg.Now()),
		deadlines: deadline.Shared{Timeout: cfg.Timeout}}
}

// Breaker returns the breaker of the part that key belongs to.
func (s *Server) Breaker(key string) *Breaker {
	part := s.cfg.Partition(key)
	if part == "" {
		return s.one
	}
	found, ok := s.others.Load(part)
	if !ok {
		if s.parts.Add(1) > maxParts {
			s.parts.Add(-1)
			return s.one
		}
		if found, ok = s.others.LoadOrStore(part, New(s.cfg.Config, part, s.cfg.Now())); ok {
			s.parts.Add(-1) // another call has made it
		}
	}
	return found.(*Breaker)
}

// Detached returns a context that ends after Timeout, whenever ctx ends.
func (s *Server) Detached(ctx context.Context) context.Context { return s.deadlines.Detached(ctx) }

// Call calls the server, unless b, the breaker of key, is open: then it starts a probe, if one is
// due. It waits for at most Timeout, half of the time that the caller has left, or until the caller
// gives up, which it does not notice while it makes the call itself. The error is ErrNoAnswer, one
// of ctx, or a Refused one. A nil Breaker does not record how the call ends.
//
// A Prompt server is called by here, on this goroutine, unless the caller has little time. The call
// began at began. Otherwise detach returns what makes the call on a goroutine of its own, possibly
// for longer than Call waits or Timeout, and what is called once with its error, after Timeout at
// the latest; hurried is set if Call waits for less than that.
func (s *Server) Call(
	ctx context.Context, b *Breaker, key string, began time.Time, here func(context.Context) error,
	detach func(hurried bool) (op func(context.Context) error, end func(error)),
) error {
	if b != nil && !b.Closed() {
		s.startProbe(b, key)
		return ErrNoAnswer
	}
	wait := s.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if s.cfg.Prompt && wait == s.cfg.Timeout {
		err := here(s.Detached(ctx))
		now := s.cfg.Now()
		s.called(now.Sub(began), err)
		if err = s.judge(b, err, now); err == ErrNoAnswer && ctx.Err() != nil {
			return gaveUp(ctx)
		}
		return err
	}
	op, end := detach(wait < s.cfg.Timeout)
	done := make(chan error, 1)
	go s.attempt(context.WithoutCancel(ctx), s.cfg.Timeout, op, func(err error) {
		err = s.judge(b, err, s.cfg.Now())
		end(err)
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-time.After(wait):
		if wait < s.cfg.Timeout {
			s.shortDeadlines.Add(1)
		}
		return ErrNoAnswer
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("weir: the caller gave up: %w", ctx.Err())
}

// startProbe starts a probe, if one is due, in a goroutine of its own, which ends with ProbeTimeout
// if the server respects its context.
func (s *Server) startProbe(b *Breaker, key string) {
	started := s.cfg.Now()
	change := b.ProbeDue(started)
	if change == nil {
		return
	}
	s.notify(change)
	b.Probes.Add(1)
	go func() {
		defer b.Probes.Add(-1)
		s.attempt(context.Background(), s.cfg.ProbeTimeout, func(ctx context.Context) error {
			return s.probe(ctx, fmt.Sprintf("%s %d", s.cfg.Name, s.probes.Add(1)), key)
		}, func(err error) {
			s.notify(b.Finish(started, s.cfg.Now(), err))
			if err != nil {
				s.failures.Add(1)
				s.report(err)
			}
		})
	}()
}

// probe returns nil once the server has answered within Timeout. After an attempt that took longer
// it tries again, and not after one that failed sooner.
func (s *Server) probe(ctx context.Context, name, key string) error {
	for i := 0; i < attempts && ctx.Err() == nil; i++ {
		one, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout/attempts)
		called, err := s.cfg.Probe(one, s.probeKey(fmt.Sprintf("%s %d", name, i), key))
		cancel()
		if err != nil && !s.isDown(err) {
			s.report(err)
			err = nil
		}
		if time.Since(called) <= s.cfg.Timeout {
			return err
		}
	}
	return ErrTimeout
}

// probeKey returns a key that begins with name or ends in it and is in the same part as
// near.
func (s *Server) probeKey(name, near string) string {
	part, head := s.cfg.Partition(near), near[:min(len(near), 512)]
	for i := range 512 {
		for _, key := range []string{fmt.Sprint(name, " ", i), fmt.Sprint(head, " ", i, " ", name)} {
			if s.cfg.Partition(key) == part {
				return key
			}
		}
	}
	return name
}

// attempt runs op within timeout and calls end once: when op returns, panics or exits, or, with
// ErrTimeout, when timeout is over.
func (s *Server) attempt(
	ctx context.Context, timeout time.Duration, op func(context.Context) error, end func(error),
) {
	start := s.cfg.Now()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var ended atomic.Bool
	endOnce := func(err error) {
		if took := s.cfg.Now().Sub(start); !ended.Swap(true) {
			end(err)
			s.called(took, err)
		}
	}
	defer context.AfterFunc(bounded, func() { endOnce(ErrTimeout) })()
	safely.Do(func() error { return op(bounded) }, func(err error) { endOnce(s.counted(err)) })
}

// judge records the end of a call in its breaker, and returns its error for the caller.
func (s *Server) judge(b *Breaker, err error, now time.Time) error {
	var failure error
	switch {
	case err == nil:
	case s.cfg.Refused(err):
		return err
	case err == ErrTimeout, s.isDown(err):
		s.failures.Add(1)
		failure = err
	}
	if b != nil {
		s.notify(b.Record(now, failure))
	}
	if err == nil {
		return nil
	}
	s.report(err)
	return ErrNoAnswer
}

// isDown reports whether err counts against the server. If Config.IsDown panics, it does.
func (s *Server) isDown(err error) (down bool) {
	return s.cfg.IsDown == nil || s.safely(func() { down = s.cfg.IsDown(err) }) != nil || down
}

// called calls OnCall. A method that the server lacks was no call.
func (s *Server) called(took time.Duration, err error) {
	if s.cfg.OnCall != nil && !errors.Is(err, errors.ErrUnsupported) {
		_ = s.safely(func() { s.cfg.OnCall(took, err) })
	}
}

// report calls OnError.
func (s *Server) report(err error) {
	if s.cfg.OnError != nil {
		_ = s.safely(func() { s.cfg.OnError(err) })
	}
}

// notify calls OnChange, unless c is nil.
func (s *Server) notify(c *Change) {
	if c != nil && s.cfg.OnChange != nil {
		_ = s.safely(func() { s.cfg.OnChange(*c) })
	}
}

// safely calls a user's function, with no lock held, and returns its panic as an error.
func (s *Server) safely(f func()) error {
	return s.counted(safely.Call(func() error { f(); return nil }))
}

// counted counts err if it is of a panic.
func (s *Server) counted(err error) error {
	if errors.Is(err, safely.ErrPanic) {
		s.panics.Add(1)
	}
	return err
}

// Stats are the counts of a [Server] so far.
type Stats struct {
	// of its breaker; of several, of the first that is not closed
	State                           State
	Since                           time.Time
	NotClosed                       int // breakers
	Opens, Probes, Failures, Panics uint64
	ShortDeadlines                  uint64 // calls that were not waited for as long as Timeout
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	st := Stats{Probes: s.probes.Load(), Failures: s.failures.Load(), Panics: s.panics.Load(),
		ShortDeadlines: s.shortDeadlines.Load()}
	add := func(_, one any) bool {
		b := one.(*Breaker)
		st.Opens += b.opens.Load()
		state, since := b.State()
		if state != Closed {
			st.NotClosed++
		}
		if st.Since.IsZero() || state != Closed && st.State == Closed {
			st.State, st.Since = state, since
		}
		return true
	}
	add("", s.one)
	s.others.Range(add)
	return st
}
