package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/limits"
)

// Store returns the Store, for limits.Batcher.
func (s *Strategy) Store() (store any, of weir.Strategy) { return s.store, s }

// Store returns the Store, for limits.Batcher.
func (l *Log) Store() (store any, of weir.Strategy) { return l.store, l }

// Store returns the Store, for limits.Batcher.
func (c *Calendar) Store() (store any, of weir.Strategy) { return c.store, c }

// Store returns the Store, for limits.Batcher.
func (t *Tiers) Store() (store any, of weir.Strategy) { return t.store, t }

// itself returns the Strategy that a Log or Tiers has embedded.
func (s *Strategy) itself() *Strategy { return s }

// Batch implements limits.Batcher: it makes one call for each of attempts, all in one pipeline on
// each node. Whether a call was made if its reply was lost is unknown, as of Run.
func (s *Strategy) Batch(ctx context.Context, op limits.Op, attempts []*limits.Attempt) {
	if len(attempts) == 1 {
		l := attempts[0]
		res, err := wrap.Do(ctx, op, own(l), &l.Request, &l.Result)
		l.Err = err
		if res != nil {
			l.Result = *res
		}
		return
	}
	calls := make([]*call, 0, len(attempts))
	for _, l := range attempts {
		c := &call{limit: l, strategy: own(l)}
		c.prepare(op)
		if c.args != nil {
			calls = append(calls, c)
		}
	}
	s.store.evalAll(ctx, calls)
	for _, c := range calls {
		if c.limit.Err == nil && (op == limits.OpRun || op == limits.OpPeek) {
			c.decided()
		}
	}
}

// own returns the Strategy of a limit.
func own(l *limits.Attempt) *Strategy {
	return l.Strategy().(interface{ itself() *Strategy }).itself()
}

// call is one call of a batch.
type call struct {
	limit    *limits.Attempt
	strategy *Strategy
	script   *script
	now      reading
	args     []any // the command; nil if there is nothing to call
	possible bool  // the request can pass
	cmd      *redis.ZeroCopyStringCmd
	reply    numbers
}

// prepare sets args, or the Err of the limit.
func (c *call) prepare(op limits.Op) {
	r, taken := &c.limit.Request, &c.limit.Result
	name := [...]any{limits.OpRun: opRun, limits.OpPeek: opPeek, limits.OpRefund: "refund",
		limits.OpCharge: "charge"}[op]
	key, args, possible, err := c.strategy.prepare(name, r, cost(r))
	c.limit.Err = err
	if err != nil {
		return
	}
	c.script, c.now, c.possible = c.strategy.script, c.strategy.store.read(), possible
	args = at(args, c.now)
	switch {
	case op != limits.OpRefund:
		c.args = on(args, key)
	case possible && taken.Allowed() && !taken.ExpiresAt.IsZero(): // else nothing is to give back
		c.script = c.script.load().takingBack
		args = append(args, c.now.refunded(taken.ExpiresAt, r.Duration)...)
		c.args = on(append(args, ""), key, resetKey, backKey)
	}
}

// decided sets the Result of the limit.
func (c *call) decided() {
	res, _, err := c.strategy.result(&c.limit.Request, c.reply, c.possible, c.now)
	c.limit.Err = err
	if err == nil {
		c.limit.Result = *res
	}
}

// evalAll is eval of several scripts. It sets the Err of their limits.
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
		s.called(start, calls[0].limit.Err)
	}()
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
			c.limit.Err = explain(ctx, err)
			continue
		}
		c.reply, c.limit.Err = parse(c.cmd.Bytes(), c.script.values)
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
		c.limit.Err = err
	}
}
