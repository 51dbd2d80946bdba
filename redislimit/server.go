package redislimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/stores/guarded"
)

// server makes the calls of a Store.
type server struct {
	deadlines guarded.Deadlines
	client    redis.UniversalClient
	onCall    func(took time.Duration, err error)
}

// eval runs a script within the timeout, on key and on the keys beside it that end in the suffixes,
// and returns its numbers; args began as Store.args. One round trip, unless the server does not
// know the script.
func (s *server) eval(
	ctx context.Context, sc *script, key string, args []any, suffixes ...string,
) (v numbers, err error) {
	if err := ctx.Err(); err != nil {
		return v, fmt.Errorf("redislimit: %w", err)
	}
	start := time.Now()
	defer func() { s.called(start, err) }()
	bounded, cancel := s.deadlines.Within(ctx)
	defer cancel()
	// An answer from the network is the only thing here that can be anything.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: client panicked: %v", ErrReply, p)
		}
	}()
	args = on(args, key, suffixes...)
	args[0], args[1] = evalsha, sc.digest
	reply, err := s.send(bounded, args, sc.values)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = eval, sc.source
		reply, err = s.send(bounded, args, sc.values)
	}
	if err != nil {
		return v, explain(ctx, err)
	}
	return parse(reply, sc.values)
}

// doAll makes the calls, and sets the outcome of their ops.
func (s *server) doAll(ctx context.Context, calls []*call) {
	s.evalAll(ctx, calls)
	for _, c := range calls {
		if c.op.Err == nil {
			c.op.Err = c.finish()
		}
	}
}

// evalAll is eval of several scripts. It sets the Err of their ops.
func (s *server) evalAll(ctx context.Context, calls []*call) {
	if len(calls) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		fail(calls, fmt.Errorf("redislimit: %w", err))
		return
	}
	start := time.Now()
	bounded, cancel := s.deadlines.Within(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			fail(calls, fmt.Errorf("%w: client panicked: %v", ErrReply, p))
		}
		s.called(start, calls[0].op.Err)
	}()
	for _, c := range calls {
		c.args = on(c.args, c.key, c.beside...)
	}
	s.sendAll(bounded, calls, evalsha)
	var unknown []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	s.sendAll(bounded, unknown, eval)
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil {
			c.op.Err = explain(ctx, err)
			continue
		}
		c.reply, c.op.Err = parse(c.cmd.Bytes(), c.script.values)
	}
}

// sendAll sends the commands in one pipeline, once; see send.
func (s *server) sendAll(ctx context.Context, calls []*call, command any) {
	if len(calls) == 0 {
		return
	}
	pipe := s.client.Pipeline()
	for _, c := range calls {
		sc := c.script
		c.args[0], c.args[1] = command, sc.digest
		if command == eval {
			c.args[1] = sc.source
		}
		c.cmd = redis.NewZeroCopyStringCmd(ctx, make([]byte, maxReply(sc.values)), c.args...)
		_ = pipe.Process(ctx, c.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its error
}

// called reports a call that began at start to Config.OnCall.
func (s *server) called(start time.Time, err error) {
	if s.onCall != nil {
		s.onCall(time.Since(start), err)
	}
}

// send sends one command, once: go-redis never retries a ZeroCopyStringCmd, whatever the client's
// settings, and Cluster's redirections follow only answers that say the command was not run. Nor
// does its reply allocate the length that a malicious server states.
func (s *server) send(ctx context.Context, args []any, values int) ([]byte, error) {
	cmd := redis.NewZeroCopyStringCmd(ctx, make([]byte, maxReply(values)), args...)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Bytes(), nil
}

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.op.Err = err
	}
}

// The words of a command before the script's arguments. Making an interface of a string costs an
// allocation, hence the variables.
var evalsha, eval any = "evalsha", "eval"

const head = 4 // command, script, number of keys, key

// on sets the keys of a command: key, and those beside it.
func on(args []any, key string, suffixes ...string) []any {
	args[2], args[3] = 1+len(suffixes), key
	for i, suffix := range suffixes {
		args = slices.Insert(args, head+i, any(key+suffix))
	}
	return args
}

// at sets the clock of a command, if it is not the server's.
func at(args []any, now reading) []any {
	if now.clocks == nil {
		n := instantOf(now.now)
		args[head] = fmt.Sprint(args[head], " ", n.s, " ", n.ns)
	}
	return args
}

// maxReply is how many bytes an answer of so many numbers takes at most: each has 17 and a space or
// the two bytes that end it.
func maxReply(values int) int { return 8 + 20*values }

// explain distinguishes the caller's deadline from ours, and wraps the client's error. The
// connection's deadline may strike a moment before the context's timer does, hence the look at the
// time.
func explain(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("redislimit: %w", cause)
	}
	timeout := errors.Is(err, context.DeadlineExceeded)
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		timeout = true
	}
	if deadline, ok := ctx.Deadline(); timeout && ok && !time.Now().Before(deadline) {
		return fmt.Errorf("redislimit: %w", context.DeadlineExceeded)
	}
	switch {
	case timeout:
		return fmt.Errorf("%w: %v", ErrTimeout, err)
	case unknownMaster(err):
		return fmt.Errorf("redislimit: no Sentinel has a master of this name: %w", err)
	case errors.Is(err, redis.Nil), unparsable(err):
		return fmt.Errorf("%w: %v", ErrReply, err)
	case strings.Contains(err.Error(), "weir: clocks differ"): // see calendar.lua
		return fmt.Errorf("%w: %v", ErrClock, err)
	}
	return fmt.Errorf("redislimit: %w", err)
}

// unparsable reports whether err is go-redis' own complaint about an answer, which has no type.
func unparsable(err error) bool {
	return hasPrefix(err.Error(), []string{
		"redis: can't parse", "redis: invalid reply", "redis: buffer too small", "bufio: "})
}
