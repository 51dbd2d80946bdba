package redislimit

import (
	"bytes"
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one of lua/*.lua, with its includes.
type script struct {
	source string
	digest any // a string, ready to be an argument: SHA-1 in hex, the name EVALSHA knows the script by
	values int // how many numbers it returns: of one that decides the last two are its clock

	// Where the cost stands among the script's own arguments, from 1, and in how many: 1, or 2 if
	// it is a time.
	cost, width int

	once                               sync.Once
	reconciling, admitting, takingBack *script // set by once
}

var (
	fixedWindow    = load("fixed_window", 5, 3, 1)
	inFlight       = load("in_flight", 6, 4, 1)
	calendarWindow = load("calendar", 5, 6, 1)
	slidingWindow  = load("sliding_window", 6, 3, 1)
	slidingLog     = load("sliding_log", 6, 3, 1)
	sortedSet      = load("sorted_set", 6, 3, 1)
	tokenBucket    = load("token_bucket", 7, 1, 2)
	tiered         = load("tiers", 6, 2, 1)
	counter        = load("counter", 6, 4, 1)
	list           = load("list", 6, 4, 1)
	reset          = load("reset", 1, 0, 0)
	heartbeat      = load("heartbeat", 2, 0, 0)
)

func load(name string, values, cost, width int) *script {
	sc := newScript(source(name), values)
	sc.cost, sc.width = cost, width
	return sc
}

func newScript(text string, values int) *script {
	sum := sha1.Sum([]byte(text))
	return &script{source: text, digest: hex.EncodeToString(sum[:]), values: values}
}

// source is the text of a file, in which a line "--include name" stands for the file of that name.
func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there, or every use of the package ends here
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(line, "--include "); ok {
			line = source(strings.TrimSpace(included))
		}
		b.WriteString(line)
	}
	return b.String()
}

// step returns a script in which this one is the function step, which the file of that name calls.
func (sc *script) step(name string, values int) *script {
	return newScript("local function step(ARGV)\n"+sc.source+"\nend\n"+source(name), values)
}

// load makes, once, the scripts that this one is a step of.
func (sc *script) load() *script {
	sc.once.Do(func() {
		sc.reconciling = sc.step("reconcile", sc.values+admissionValues)
		sc.admitting = sc.step("admission", sc.values+admissionValues)
		sc.takingBack = sc.step("take_back", 1)
	})
	return sc
}

// maxReply is how many bytes an answer of so many numbers takes at most: each has 17 and a space or
// the two bytes that end it.
func maxReply(values int) int { return 8 + 20*values }

// eval runs a script within the timeout, on key and on the keys beside it that end in the suffixes,
// and returns its numbers; args began as Store.args. One round trip, unless the server does not
// know the script.
func (s *Store) eval(
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
func (s *Store) doAll(ctx context.Context, calls []*call) {
	s.evalAll(ctx, calls)
	for _, c := range calls {
		if c.op.Err == nil {
			c.op.Err = c.finish()
		}
	}
}

// evalAll is eval of several scripts. It sets the Err of their ops.
func (s *Store) evalAll(ctx context.Context, calls []*call) {
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
func (s *Store) sendAll(ctx context.Context, calls []*call, command any) {
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

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.op.Err = err
	}
}

// What stands in a command before the script's arguments. Making an interface of a string costs an
// allocation, hence the variables.
var evalsha, eval any = "evalsha", "eval"

const head = 4 // command, script, number of keys, key

// args begins a command for eval, with room for the head and for what the scripts add to the
// arguments that all share. See clock.lua.
func (s *Store) args(op any) []any {
	return append(make([]any, head, head+12), op, s.grace)
}

// on sets the keys of a command: key, and those beside it.
func on(args []any, key string, suffixes ...string) []any {
	args[2], args[3] = 1+len(suffixes), key
	for i, suffix := range suffixes {
		args = slices.Insert(args, head+i, any(key+suffix))
	}
	return args
}

// at sets the clock of a command, if it is not that of the server.
func at(args []any, now reading) []any {
	if now.clocks == nil {
		n := instantOf(now.now)
		args[head] = fmt.Sprint(args[head], " ", n.s, " ", n.ns)
	}
	return args
}

// called reports a call that began at start to Config.OnCall.
func (s *Store) called(start time.Time, err error) {
	if s.onCall != nil {
		s.onCall(time.Since(start), err)
	}
}

// send sends one command, once: go-redis never retries a ZeroCopyStringCmd, whatever the client's
// settings, and Cluster's redirections follow only answers that say the command was not run. Nor
// does its reply allocate the length that a malicious server states.
func (s *Store) send(ctx context.Context, args []any, values int) ([]byte, error) {
	cmd := redis.NewZeroCopyStringCmd(ctx, make([]byte, maxReply(values)), args...)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Bytes(), nil
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

// numbers are the reply of a script.
type numbers [maxNumbers]int64

const maxNumbers = 7 + admissionValues

// clock returns the clock that a reply of a deciding script ends with.
func (sc *script) clock(v numbers) instant { return instant{v[sc.values-2], v[sc.values-1]} }

// parse reads exactly n whole numbers with one space between, as the scripts write them. The first
// is 0 or 1.
func parse(reply []byte, n int) (v numbers, err error) {
	rest := reply
	for i := range n {
		word, after, more := bytes.Cut(rest, []byte{' '})
		v[i], err = strconv.ParseInt(string(word), 10, 64)
		if err != nil || more != (i < n-1) || v[i] > maxCount || v[i] < -maxCount {
			return v, fmt.Errorf("%w: %.100q", ErrReply, reply)
		}
		rest = after
	}
	if v[0] != 0 && v[0] != 1 {
		return v, fmt.Errorf("%w: %.100q", ErrReply, reply)
	}
	return v, nil
}
