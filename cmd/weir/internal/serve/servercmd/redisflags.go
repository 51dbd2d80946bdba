package servercmd

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
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

// proxyRedisFlags are those of weir proxy.
type proxyRedisFlags struct {
	redisFlags
	onFail string
}

func (f *proxyRedisFlags) add(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	f.redisFlags.add(flags, "")
	flags.StringVar(&f.onFail, "on-redis-failure", "local",
		"what to do without Redis: local (decide alone), open (admit all) or closed (admit none)")
	flags.DurationVar(&f.cfg.Fallback.ProbeInterval, "redis-probe",
		fallback.DefaultProbeInterval, "how often to try a Redis that is down")
	flags.IntVar(&cfg.Lease, "redis-lease", 0,
		"take a caller's budget in blocks of this size, for fewer calls to Redis (windows and buckets)")
	flags.IntVar(&cfg.Denials, "redis-denials", 0,
		"number of denials to cache, so that an attack does not reach Redis")
	cli.Section(cmd, "Counts on Redis")
}

func (f *proxyRedisFlags) set(cfg *proxy.Config) error {
	if err := oneOf("on-redis-failure", f.onFail, proxy.OnFailNames...); err != nil {
		return err
	}
	if f.cfg.URL == "" && f.cfg.Fallback.Instances > 1 {
		return cli.Wrong("instances", "needs --redis, through which they share a limit")
	}
	err := f.setPasswords()
	cfg.Redis = f.cfg
	cfg.Redis.Fallback.OnFail = fallback.OnFail(slices.Index(proxy.OnFailNames, f.onFail))
	return err
}
