package redislimit

import (
	"context"
	"errors"
	"fmt"
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

// do runs the scripts of calls within the timeout, in one round trip, unless one is new to the
// server, and sets the reply and the err of each.
func (s *server) do(ctx context.Context, calls ...*call) {
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
		// An answer from the network is the only thing here that can be anything.
		if p := recover(); p != nil {
			fail(calls, fmt.Errorf("%w: client panicked: %v", ErrReply, p))
		}
		s.called(start, calls[0].err)
	}()
	s.send(bounded, calls, evalsha)
	s.send(bounded, calls, eval)
	for _, c := range calls {
		if err := c.cmd.Err(); err != nil {
			c.err = explain(ctx, err)
			continue
		}
		c.reply, c.err = parse(c.cmd.Bytes(), c.script.values)
	}
}

// send sends the commands of calls, each with that word, that were not sent or whose scripts the
// server does not know. Several are one pipeline.
func (s *server) send(ctx context.Context, calls []*call, word any) {
	var to interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	} = s.client
	var pipe redis.Pipeliner
	if len(calls) > 1 {
		pipe = s.client.Pipeline()
		to = pipe
	}
	for _, c := range calls {
		if !c.sent() {
			// Redis's client sets the error of the command; one around it may not.
			if err := to.Process(ctx, c.command(ctx, word)); err != nil && c.cmd.Err() == nil {
				c.cmd.SetErr(err)
			}
		}
	}
	if pipe != nil && pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}

// called reports a call that began at start to Config.OnCall.
func (s *server) called(start time.Time, err error) {
	if s.onCall != nil {
		s.onCall(time.Since(start), err)
	}
}

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
	}
}

// The words of a command before the script's arguments. Making an interface of a string costs an
// allocation, hence the variables.
var evalsha, eval any = "evalsha", "eval"

const head = 4 // command, script, number of keys, key

// at sets the clock of a command, if it is not the server's.
func at(args []any, now reading) []any {
	if now.clocks == nil {
		n := instantOf(now.now)
		args[head] = fmt.Sprint(args[head], " ", n.s, " ", n.ns)
	}
	return args
}

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
