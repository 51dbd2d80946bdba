// Package onredis makes strategies that count on Redis, and in memory while Redis is down.
package onredis

import (
	"context"
	"log/slog"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/rules"
)

// Strategies returns Strategies that count on remote, and on local while remote is down. Each of
// the cfg.Instances processes then has an equal part of every limit. Strategies logs changes of a
// breaker and, if made is not nil, calls it for each strategy with its name.
func Strategies(remote, local rules.Strategies, cfg fallback.Config, log *slog.Logger,
	made func(name string, f *fallback.Fallback)) rules.Strategies {
	cfg.IsDown = func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	return func(m rules.Method) (weir.Strategy, error) {
		primary, err := remote(m)
		if err != nil {
			return nil, err
		}
		behind, err := local(share(m, cfg.Instances))
		if err != nil {
			return nil, err
		}
		own, name := cfg, m.String()
		own.OnChange = func(c fallback.Change) { logChange(log, name, c) }
		f, err := fallback.New(primary, behind, own)
		if err == nil && made != nil {
			made(name, f)
		}
		return f, err
	}
}

// share returns m with a process's share of the burst. fallback divides only the limit of a
// request, and the burst is not in the request.
func share(m rules.Method, instances int) rules.Method {
	if m.Burst > 0 {
		m.Burst = (m.Burst-1)/uint64(max(1, instances)) + 1
	}
	return m
}

func logChange(log *slog.Logger, name string, c fallback.Change) {
	level, cause := slog.LevelInfo, ""
	if c.To == fallback.Open {
		level = slog.LevelWarn
	}
	if c.Cause != nil {
		cause = c.Cause.Error()
	}
	log.Log(context.Background(), level, "redis breaker",
		"strategy", name, "from", c.From.String(), "to", c.To.String(), "cause", cause)
}
