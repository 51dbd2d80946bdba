package redistest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock is a hook of a client, for AddHook, whose scripts read another clock than the server's.
// TIME of a script is what Now returned when its command was sent; keys live by the server's.
type Clock struct {
	Now func() time.Time

	mu      sync.Mutex
	sources map[any]string // by digest; guarded by mu
}

// set is the key that the scripts find the time in, microseconds since the Unix epoch.
const set = "redistest:clock"

// prelude has a script read it.
const prelude = `local server = redis
local redis = {call = function(name, ...)
  if name ~= 'TIME' then return server.call(name, ...) end
  local us = server.call('GET', '` + set + `')
  return {string.sub(us, 1, -7), string.format('%d', string.sub(us, -6))}
end}
`

// DialHook implements redis.Hook.
func (c *Clock) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

// ProcessHook implements redis.Hook.
func (c *Clock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !c.rewrite(cmd) {
			return next(ctx, cmd)
		}
		// Processed by next, so by the same hooks as the script, but not by this one.
		if err := next(ctx, c.set(ctx)); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *Clock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		scripts := false
		for _, cmd := range all {
			scripts = c.rewrite(cmd) || scripts
		}
		if scripts {
			all = append([]redis.Cmder{c.set(ctx)}, all...)
		}
		return next(ctx, all)
	}
}

func (c *Clock) set(ctx context.Context) redis.Cmder {
	return redis.NewStatusCmd(ctx, "set", set, c.Now().UnixMicro())
}

// rewrite has a script read Now, and reports whether cmd is one.
func (c *Clock) rewrite(cmd redis.Cmder) bool {
	args := cmd.Args()
	switch cmd.Name() {
	case "eval":
		source, _ := args[1].(string)
		sum := sha1.Sum([]byte(source))
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sources == nil {
			c.sources = map[any]string{}
		}
		c.sources[hex.EncodeToString(sum[:])] = prelude + source
		args[1] = prelude + source
	case "evalsha":
		c.mu.Lock()
		defer c.mu.Unlock()
		if source, known := c.sources[args[1]]; known {
			args[0], args[1] = "eval", source
		} else {
			args[1] = "0000000000000000000000000000000000000000" // which is of no script
		}
	default:
		return false
	}
	return true
}
