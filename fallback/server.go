package fallback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/internal/stores/guarded"
)

// errUndecided reports that primary did not decide, so local does: its breaker is open, or the call
// failed or was late. Callers never see this error.
var errUndecided = errors.New("no answer")

// errTimeout is the failure of a call, or a probe, that was late.
var errTimeout = errors.New("the server did not answer in time")

// attempts is how often a probe tries to get an answer within Timeout. A connection that died
// unnoticed costs one.
const attempts = 4

// server is called as its breakers permit: each part of it has one. The zero Partition of its
// Config is one part. A server is safe for concurrent use.
type server struct {
	cfg    Config
	prompt bool   // see weir.About
	name   string // no other server's

	// try makes an attempt of a probe, with a key of its own in the part that is probed: the key
	// begins with name or ends in that. try returns when the server was called, after the time for
	// the connection.
	try func(ctx context.Context, key string) (called time.Time, err error)

	one       *breaker     // of the part "", which is most often all, and for parts beyond maxParts
	others    sync.Map     // of *breaker, by part
	parts     atomic.Int64 // that have one of others
	deadlines guarded.Deadlines

	probes, failures, panics, shortDeadlines, losses atomic.Uint64

	changesLogged, lossesLogged throttle.Throttle
}

// maxParts bounds the parts that have a breaker of their own.
const maxParts = 1024

// open closes the breakers of a server whose fields above are set.
func (s *server) open() {
	if s.cfg.Partition == nil {
		s.cfg.Partition = func(string) string { return "" }
	}
	s.one = newBreaker(s.cfg, "", s.cfg.Now())
	s.deadlines.Timeout = s.cfg.Timeout
}

// breaker returns the breaker of the part that key belongs to.
func (s *server) breaker(key string) *breaker {
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
		found, ok = s.others.LoadOrStore(part, newBreaker(s.cfg, part, s.cfg.Now()))
		if ok {
			s.parts.Add(-1) // another call has made the breaker
		}
	}
	return found.(*breaker)
}

// Call makes one call of the server, and of the servers of other parts, by do, which sets err of
// each visit; Call sets end. The wait is for at most Timeout, half of the time that the caller has
// left, or until the caller gives up. A prompt server is called on this goroutine, unless the
// caller has little time; then Call does not notice that the caller gives up. Otherwise the call
// may go on for longer than Call waits, but counts as late after Timeout.
func (s *server) Call(
	ctx context.Context, all []*visit, do func(ctx context.Context, all []*visit),
) {
	wait := s.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	if s.prompt && wait == s.cfg.Timeout {
		do(s.deadlines.Detached(ctx), all)
		for _, v := range all {
			v.end = v.f.server.ended(v, v.f.cfg.Now().Sub(v.began), nil)
			if v.end == errUndecided && ctx.Err() != nil {
				v.end = gaveUp(ctx)
			}
		}
		return
	}
	for _, v := range all {
		v.outlast(wait < s.cfg.Timeout)
	}
	done := make(chan []error, 1)
	go s.attempt(context.WithoutCancel(ctx), s.cfg.Timeout, func(ctx context.Context) error {
		defer func() {
			for _, v := range all {
				v.outlasted(ctx)
			}
		}()
		do(ctx, all)
		return nil
	}, func(took time.Duration, err error) {
		ends := make([]error, len(all))
		for i, v := range all {
			ends[i] = v.f.server.ended(v, took, err)
		}
		done <- ends
	})
	var ends []error
	select {
	case ends = <-done:
	case <-time.After(wait):
		if wait < s.cfg.Timeout {
			s.shortDeadlines.Add(uint64(len(all)))
		}
		ends = slices.Repeat([]error{errUndecided}, len(all))
	case <-ctx.Done():
		ends = slices.Repeat([]error{gaveUp(ctx)}, len(all))
	}
	for i, v := range all {
		v.end = ends[i]
	}
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("weir: the caller gave up: %w", ctx.Err())
}

// startProbe starts a probe, if one is due, in a goroutine of its own, which ends with ProbeTimeout
// if the server respects its context.
func (s *server) startProbe(b *breaker, key string) {
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
			return s.probe(ctx, fmt.Sprintf("%s %d", s.name, s.probes.Add(1)), key)
		}, func(took time.Duration, err error) {
			err = s.counted(err)
			s.notify(b.Finish(started, s.cfg.Now(), err))
			if err != nil {
				s.failures.Add(1)
				s.report(err)
			}
			s.called(took, err)
		})
	}()
}

// probe returns nil once the server has answered within Timeout. An attempt that took longer is
// followed by another, one that failed sooner is not.
func (s *server) probe(ctx context.Context, name, key string) error {
	for i := 0; i < attempts && ctx.Err() == nil; i++ {
		one, cancel := context.WithTimeout(ctx, s.cfg.ProbeTimeout/attempts)
		called, err := s.try(one, s.probeKey(fmt.Sprintf("%s %d", name, i), key))
		cancel()
		if err != nil && !s.isDown(err) {
			s.report(err)
			err = nil
		}
		if time.Since(called) <= s.cfg.Timeout {
			return err
		}
	}
	return errTimeout
}

// probeKey returns a key of the part of near, which begins or ends with name.
func (s *server) probeKey(name, near string) string {
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
// errTimeout, when timeout is over.
func (s *server) attempt(
	ctx context.Context, timeout time.Duration, op func(context.Context) error,
	end func(took time.Duration, err error),
) {
	start := s.cfg.Now()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var ended atomic.Bool
	endOnce := func(err error) {
		if took := s.cfg.Now().Sub(start); !ended.Swap(true) {
			end(took, err)
		}
	}
	defer context.AfterFunc(bounded, func() { endOnce(errTimeout) })()
	guarded.Do(func() error { return op(bounded) }, endOnce)
}

// ended records the end of a visit's call, at Timeout at the latest, with err or with the error of
// the visit, and returns the error for the caller.
func (s *server) ended(v *visit, took time.Duration, err error) error {
	if v.late != nil { // last, as it waits while local decides
		defer v.settle(context.Background(), known{ended: true}) // nothing once outlasted
	}
	if err == nil {
		err = v.err
	}
	err = s.counted(err)
	s.called(took, err)
	var failure error
	switch {
	case err == nil:
	case refused(err):
		return err
	case err == errTimeout, s.isDown(err):
		s.failures.Add(1)
		failure = err
	}
	if !v.peeks {
		s.notify(v.b.Record(s.cfg.Now(), failure))
	}
	if err == nil {
		return nil
	}
	s.report(err)
	return errUndecided
}

// isDown reports whether err counts against the server. If Config.IsDown panics, err does.
func (s *server) isDown(err error) (down bool) {
	return s.cfg.IsDown == nil || s.safely(func() { down = s.cfg.IsDown(err) }) != nil || down
}

// called calls OnCall. An op that the server cannot do was no call.
func (s *server) called(took time.Duration, err error) {
	if s.cfg.OnCall != nil && (err == nil || supported(err) != nil) {
		_ = s.safely(func() { s.cfg.OnCall(took, err) })
	}
}

// report calls OnError.
func (s *server) report(err error) {
	if s.cfg.OnError != nil {
		_ = s.safely(func() { s.cfg.OnError(err) })
	}
}

// notify calls OnChange, unless c is nil. Without one a line is logged when a breaker opens or
// closes; the probes in between are not logged.
func (s *server) notify(c *Change) {
	switch {
	case c == nil:
	case s.cfg.OnChange != nil:
		_ = s.safely(func() { s.cfg.OnChange(*c) })
	case c.From == Closed:
		s.log(&s.changesLogged, slog.LevelWarn, "fallback: the breaker opened", c.Partition,
			slog.String("error", c.Cause.Error()))
	case c.To == Closed:
		s.log(&s.changesLogged, slog.LevelInfo, "fallback: the breaker closed", c.Partition)
	}
}

// lost reports that primary had lost a count, to which the next call has raised primary again.
// Without OnError that is logged.
func (s *server) lost(partition string, counted uint64) {
	s.losses.Add(1)
	if s.cfg.OnError != nil {
		s.report(fmt.Errorf("%w: raised to %d", ErrLost, counted))
		return
	}
	s.log(&s.lossesLogged, slog.LevelWarn, ErrLost.Error(), partition,
		slog.Uint64("raised_to", counted))
}

// log writes a record to the default logger, at most one a second of each kind.
func (s *server) log(
	t *throttle.Throttle, level slog.Level, msg, partition string, attrs ...slog.Attr,
) {
	dropped, ok := t.Allow(s.cfg.Now(), time.Second)
	if !ok {
		return
	}
	if partition != "" {
		attrs = append(attrs, slog.String("partition", partition))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("not_logged", dropped))
	}
	slog.LogAttrs(context.Background(), level, msg, attrs...)
}

// safely calls a user's function, with no lock held, and returns its panic as an error.
func (s *server) safely(f func()) error {
	return s.counted(guarded.Call(func() error { f(); return nil }))
}

// counted counts an err of a panic.
func (s *server) counted(err error) error {
	if errors.Is(err, guarded.ErrPanic) {
		s.panics.Add(1)
	}
	return err
}

// stats sets the fields of st on the server and its breakers.
func (s *server) stats(st *Stats) {
	st.Probes, st.Failures, st.Panics = s.probes.Load(), s.failures.Load(), s.panics.Load()
	st.ShortDeadlines, st.Losses = s.shortDeadlines.Load(), s.losses.Load()
	add := func(_, one any) bool {
		b := one.(*breaker)
		st.Opens += b.opens.Load()
		state, since := b.State()
		if state != Closed {
			st.OpenPartitions++
		}
		if st.Since.IsZero() || state != Closed && st.State == Closed {
			st.State, st.Since = state, since
		}
		return true
	}
	add("", s.one)
	s.others.Range(add)
}
