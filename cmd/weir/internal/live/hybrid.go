package live

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/rules"
)

// Hybrid returns Strategies that count on remote, and on local while remote is down. Each of the
// cfg.Instances processes then has an equal part of every limit. Hybrid logs changes of a breaker
// and, if made is not nil, calls it for each strategy with its name.
func Hybrid(remote, local rules.Strategies, cfg fallback.Config, log *slog.Logger,
	made func(name string, f *fallback.Fallback)) rules.Strategies {
	cfg.IsDown = func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	return func(a rules.Algorithm, burst uint64) (weir.Strategy, error) {
		primary, err := remote(a, burst)
		if err != nil {
			return nil, err
		}
		behind, err := local(a, part(burst, cfg.Instances))
		if err != nil {
			return nil, err
		}
		own, name := cfg, strings.ReplaceAll(a.String(), "_", " ")
		if burst > 0 {
			name += ", burst " + strconv.FormatUint(burst, 10)
		}
		own.OnChange = func(c fallback.Change) { logChange(log, name, c) }
		f, err := fallback.New(primary, behind, own)
		if err == nil && made != nil {
			made(name, f)
		}
		return f, err
	}
}

// part returns a process's part of a burst. fallback divides only the limit of a request, and the
// burst is not in the request.
func part(burst uint64, instances int) uint64 {
	if burst == 0 {
		return 0
	}
	return (burst-1)/uint64(max(1, instances)) + 1
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
