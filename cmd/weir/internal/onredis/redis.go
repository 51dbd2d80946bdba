package onredis

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redislimit"
)

// Options returns the settings of a Redis URL and, for the rest, the ones that redislimit
// needs. A password that is not empty replaces the one in the URL.
func Options(url, password string) (*redis.Options, error) {
	o, err := redislimit.ParseURL(url)
	if err == nil && password != "" {
		o.Password = password
	}
	return o, err
}

// Ping logs a warning if Redis cannot be reached within a second. Call it at the start: a
// server starts nevertheless, since Redis may start later. Until then it decides as meanwhile says.
func Ping(ctx context.Context, client *redis.Client, log *slog.Logger, meanwhile string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil && ctx.Err() != context.Canceled {
		log.Warn("redis cannot be reached", "error", err.Error(), "until_then", meanwhile)
	}
}
