package servercmd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// ProxyConfig returns the Config of a weir proxy that gets these arguments and logs nothing.
func ProxyConfig(args []string) (proxy.Config, error) {
	var f proxyFlags
	cmd := f.command()
	if err := cmd.ParseFlags(args); err != nil {
		return proxy.Config{}, err
	}
	return f.config(cmd.Flags().Changed, io.Discard, io.Discard)
}

// checkNumbers returns an error for each number that is out of its range, or whose zero would
// select a default.
func checkNumbers(cfg *proxy.Config, redis *onredis.Config) error {
	var bits error
	if cfg.IPv6Bits < 1 || cfg.IPv6Bits > 128 {
		bits = cli.Wrong("ipv6-prefix", "must be from 1 to 128, not %d", cfg.IPv6Bits)
	}
	return errors.Join(bits,
		positive("max-deny", cfg.MaxDeny), positive("max-buckets", cfg.Table.MaxBuckets),
		positive("keep", cfg.Table.Timeout), positive("sweep-every", cfg.Table.SweepEvery),
		positive("state-every", cfg.StateEvery),
		positive("max-keys", cfg.Guard.MaxKeysPerClient),
		positive("instances", redis.Fallback.Instances),
		notNegative("drain", cfg.Drain), notNegative("drain-delay", cfg.DrainDelay),
		notNegative("upstream-timeout", cfg.UpstreamTimeout),
		notNegative("send-timeout", cfg.SendTimeout), notNegative("jitter", cfg.Guard.Jitter),
		notNegative("max-conns", cfg.MaxConns), notNegative("max-conns-per-ip", cfg.MaxConnsPerAddr),
		notNegative("max-in-flight", cfg.MaxInFlight),
		notNegative("max-in-flight-per-client", cfg.MaxInFlightPerClient),
		notNegative("max-body", cfg.Bodies.Max), notNegative("body-rate", cfg.Bodies.Rate),
		notNegative("redis-lease", cfg.Lease), notNegative("redis-denials", cfg.Denials),
		notNegative("redis-timeout", redis.Fallback.Timeout),
		notNegative("redis-probe", redis.Fallback.ProbeInterval),
	)
}

func positive[T int | time.Duration](flag string, value T) error {
	if value > 0 {
		return nil
	}
	return cli.Wrong(flag, "must be positive, not %v", value)
}

func notNegative[T int | int64 | time.Duration](flag string, value T) error {
	if value >= 0 {
		return nil
	}
	return cli.Wrong(flag, "must not be negative, but is %v", value)
}

// of returns err as one of a flag; nil for nil.
func of(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// parsed returns what the values of a flag mean, or the error of the first that parse refuses.
func parsed[T any](flag string, texts []string, parse func(string) (T, error)) ([]T, error) {
	var list []T
	for i, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, &cli.FlagError{Flags: []string{flag}, Item: i, Err: err}
		}
		list = append(list, one)
	}
	return list, nil
}
