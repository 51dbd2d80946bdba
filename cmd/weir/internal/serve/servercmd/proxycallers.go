package servercmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// callerFlags are the flags of weir proxy that say who a caller is, and who is refused.
type callerFlags struct {
	by, penalty                     string
	trust, allow, deny, strip, pass []string
}

func (f *callerFlags) add(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.StringVar(&f.by, "by", "ip",
		"what tells callers apart: ip, header:NAME, host, user, path, pattern, or several: ip+pattern")
	flags.IntVar(&cfg.Guard.MaxKeysPerClient, "max-keys", 1000,
		"how many keys, or counters of rules, one address may use; further ones share a budget")
	flags.StringSliceVar(&f.trust, "trust", nil,
		"addresses and `prefixes` of trusted proxies, whose X-Forwarded-For, -Host and -Proto are "+
			"believed")
	flags.BoolVar(&cfg.Forwarded, "forwarded", false,
		"believe the Forwarded header of RFC 7239 instead")
	flags.StringSliceVar(&f.strip, "strip", nil,
		"`names` of further headers that only trusted proxies may set")
	flags.StringSliceVar(&f.pass, "pass", nil,
		"`names` of headers that clients may set, though they look like a claim of their address or user")
	flags.IntVar(&cfg.IPv6Bits, "ipv6-prefix", 64,
		"how many `bits` of an IPv6 address tell callers apart")
	flags.StringSliceVar(&f.allow, "allow", nil,
		"addresses and `prefixes` of clients without a limit")
	cli.Section(cmd, "Callers")
	flags.StringSliceVar(&f.deny, "deny", nil,
		"refuse these addresses, prefixes and `keys` from the start")
	flags.StringVar(&cfg.DenyFile, "deny-file", "", "keep the deny list in this `file`")
	flags.IntVar(&cfg.MaxDeny, "max-deny", 10_000,
		"maximum entries of the deny list, and of the penalty box")
	flags.StringVar(&f.penalty, "penalty-box", "",
		"`DENIALS/WITHIN=FOR`: 20/1m=10m refuses a caller denied 20 times in 1m for 10m")
	cli.Section(cmd, "Deny list")
}

// set sets what tells callers apart, and who is refused, exempt and trusted, and with what.
func (f *callerFlags) set(cfg *proxy.Config) error {
	var by, deny, penalty, allow, strip, pass, trust error
	cfg.By, by = proxy.ParseBy(f.by)
	if by != nil {
		by = &cli.FlagError{Flags: []string{"by"}, Err: by}
	}
	cfg.Deny, deny = parsed("deny", f.deny, cli.Entry)
	if f.penalty != "" {
		cfg.Guard.Penalty, penalty = proxy.ParsePenalty(f.penalty)
		if penalty != nil {
			penalty = &cli.FlagError{Flags: []string{"penalty-box"}, Err: penalty}
		}
	}
	cfg.Allow, allow = cli.Prefixes("allow", f.allow)
	cfg.Strip, strip = parsed("strip", f.strip, fieldName)
	cfg.Pass, pass = parsed("pass", f.pass, fieldName)
	cfg.Trust, trust = cli.Prefixes("trust", f.trust)
	return errors.Join(by, of("--deny", deny), penalty, allow, of("--strip", strip),
		of("--pass", pass), trust)
}

// fieldName returns the name of a header field, as it was given.
func fieldName(name string) (string, error) {
	if !headerName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a header", name)
	}
	return name, nil
}
