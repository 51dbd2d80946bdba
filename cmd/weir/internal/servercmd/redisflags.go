package servercmd

import (
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/fallback"
)

// redisFlags are the flags that weir proxy and weir serve have for Redis.
type redisFlags struct {
	cfg          onredis.Config
	passwordFile string
}

// add adds the flags. zeroText describes instances of 0 if that is a valid number.
func (f *redisFlags) add(flags *pflag.FlagSet, zeroText string) {
	flags.StringVar(&f.cfg.URL, "redis", "",
		"count on the Redis at this `URL`: redis://[user@]host[:port][/database], with TLS rediss://, "+
			"which with ?skip_verify=true accepts any certificate, or unix:///path")
	flags.StringVar(&f.passwordFile, "redis-password-file", "",
		"the `file` with its password (default $WEIR_REDIS_PASSWORD)")
	flags.StringVar(&f.cfg.Prefix, "redis-prefix", "weir:", "prefix of the keys on Redis")
	flags.DurationVar(&f.cfg.Fallback.Timeout, "redis-timeout", fallback.DefaultTimeout,
		"how long a decision may wait for Redis")
	flags.IntVar(&f.cfg.Fallback.Instances, "instances", 1,
		"number of processes that share the Redis: without Redis, each uses 1/instances of a limit"+
			zeroText)
}

// setPassword sets the password of Redis, if one is given.
func (f *redisFlags) setPassword() (err error) {
	f.cfg.Password, err = cli.Secret("redis-password-file", f.passwordFile, "WEIR_REDIS_PASSWORD")
	return err
}
