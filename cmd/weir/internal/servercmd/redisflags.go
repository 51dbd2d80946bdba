package servercmd

import (
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/fallback"
)

// redisFlags are the flags that weir proxy and weir serve have for Redis.
type redisFlags struct {
	cfg                                onredis.Config
	passwordFile, sentinelPasswordFile string
}

// add adds the flags. zeroText describes instances of 0 if that is a valid number.
func (f *redisFlags) add(flags *pflag.FlagSet, zeroText string) {
	flags.StringVar(&f.cfg.URL, "redis", "",
		"count on the Redis at this `URL`: redis://[user@]host[:port][/database], with TLS rediss://, "+
			"which with ?skip_verify=true accepts any certificate, or unix:///path, or by "+
			"Sentinels redis+sentinel://HOST,HOST/MASTER, or of a Cluster redis+cluster://HOST,HOST")
	flags.StringVar(&f.passwordFile, "redis-password-file", "",
		"the `file` with its password (default $WEIR_REDIS_PASSWORD)")
	flags.StringVar(&f.sentinelPasswordFile, "redis-sentinel-password-file", "",
		"the `file` with the Sentinels' own password (default $WEIR_REDIS_SENTINEL_PASSWORD)")
	flags.StringVar(&f.cfg.Prefix, "redis-prefix", "weir:", "prefix of the keys on Redis")
	flags.DurationVar(&f.cfg.Fallback.Timeout, "redis-timeout", fallback.DefaultTimeout,
		"how long a decision may wait for Redis")
	flags.IntVar(&f.cfg.Fallback.Instances, "instances", 1,
		"number of processes that share the Redis: without Redis, each uses 1/instances of a limit"+
			zeroText)
}

// setPasswords sets the passwords of Redis and of its Sentinels, if they are given.
func (f *redisFlags) setPasswords() (err error) {
	f.cfg.Password, err = cli.Secret("redis-password-file", f.passwordFile, "WEIR_REDIS_PASSWORD")
	if err == nil {
		f.cfg.SentinelPassword, err = cli.Secret("redis-sentinel-password-file",
			f.sentinelPasswordFile, "WEIR_REDIS_SENTINEL_PASSWORD")
	}
	return err
}
