package servercmd

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// TestProxyFlags checks that every flag sets its field of the configuration.
func TestProxyFlags(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	var f proxyFlags
	cmd := f.command()
	require.NoError(t,
		cmd.ParseFlags(strings.Split("--listen :1 --upstream http://u:2/x --limit a=1/1m --limit 2/1h:leaky "+
			"--strategy token --burst 3 --queue 4 --route /r --by path --trust 10.0.0.0/8,::1 --forwarded "+
			"--ipv6-prefix 56 "+
			"--deny 192.0.2.1,k --max-deny 5 --penalty-box 6/1m=7m --headers legacy --status 418 --jitter 8s "+
			"--count-if 401 "+
			"--fail open --shadow --preserve-host --upstream-timeout 9s --drain 10s --max-buckets 11 --keep 12s "+
			"--sweep-every 13s "+
			"--access-log json --log-keys --admin 127.0.0.1:14 --admin-token-file "+token+
			" --admin-remote --admin-host h "+
			"--redis redis://r --instances 15 --on-redis-failure closed --redis-prefix p: --redis-timeout 16ms "+
			"--redis-probe 17s "+
			"--redis-lease 18 --redis-denials 19 --redis-password-file "+token+
			" --redis-sentinel-password-file "+token+
			" --normalize-paths --max-keys 20 --allow 192.0.2.9 --deny-file d --pid-file p "+
			"--cors-origin https://a.example --cors-credentials --count-preflights --on-full admit --tls-cert c "+
			"--tls-key k --max-conns 21 "+
			"--max-conns-per-ip 22 --max-in-flight 23 --max-in-flight-per-client 24 --max-body 25 --body-rate 26 "+
			"--overload=30ms --class /a=critical,/b=sheddable "+
			"--try 1/1s --drain-delay 27s --state s --state-every 29s --send-timeout 28s --address-path /a --strip X-Tenant,x-b --pass X-User", " ")))
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, err)

	assert.Equal(t, ":1", cfg.Listen)
	assert.Equal(t, "http://u:2/x", cfg.Upstream.String())
	assert.Equal(t, "1/1m token burst 3", cfg.Limits[0].String())
	assert.Equal(t, "a", cfg.Limits[0].Name)
	assert.Equal(t, "2/1h leaky burst 4", cfg.Limits[1].String())
	assert.Equal(t, "/r", cfg.Routes[0].Pattern)
	assert.Equal(t, "1/1s token burst 3", cfg.Try[0].String())
	assert.Equal(t, "path", cfg.By.String())
	assert.Equal(t, "[10.0.0.0/8 ::1/128]", fmt.Sprint(cfg.Trust))
	assert.Equal(t, [][]string{{"X-Tenant", "x-b"}, {"X-User"}}, [][]string{cfg.Strip, cfg.Pass})
	assert.Equal(t, []any{true, 56, 5}, []any{cfg.Forwarded, cfg.IPv6Bits, cfg.MaxDeny})
	assert.Equal(t, []httplimit.DenyEntry{{Prefix: netip.MustParsePrefix("192.0.2.1/32")}, {Key: "k"}}, cfg.Deny)
	assert.Equal(t, httplimit.Penalty{Denials: 6, Within: time.Minute, For: 7 * time.Minute}, cfg.Guard.Penalty)
	g := cfg.Guard
	assert.Equal(t, []any{httplimit.HeadersLegacy, 418, 8 * time.Second, true, true, true},
		[]any{g.Headers, g.DeniedStatus, g.Jitter, g.FailOpen, g.Shadow, g.LogKeys})
	assert.True(t, g.CountIf(401))
	assert.Equal(t, []any{true, 9 * time.Second, 10 * time.Second, true},
		[]any{cfg.PreserveHost, cfg.UpstreamTimeout, cfg.Drain, cfg.LogKey})
	assert.Equal(t, []any{11, 12 * time.Second, 13 * time.Second},
		[]any{cfg.Table.MaxBuckets, cfg.Table.Timeout, cfg.Table.SweepEvery})
	assert.IsType(t, &slog.JSONHandler{}, cfg.Access.Handler())
	assert.Equal(t, proxy.Admin{Addr: "127.0.0.1:14", Token: "0123456789abcdef", Remote: true,
		Hosts: []string{"h"}}, cfg.Admin)
	assert.Equal(t, onredis.Config{URL: "redis://r", Password: "0123456789abcdef", Prefix: "p:",
		SentinelPassword: "0123456789abcdef",
		Fallback: fallback.Config{
			OnFail: fallback.FailClosed, Instances: 15, Timeout: 16 * time.Millisecond,
			ProbeInterval: 17 * time.Second,
		}}, cfg.Redis)
	assert.Equal(t, []int{18, 19}, []int{cfg.Lease, cfg.Denials})

	assert.Equal(t, []any{true, "d", "s", "[192.0.2.9/32]", proxy.TLS{Cert: "c", Key: "k"}, 27 * time.Second,
		28 * time.Second, 29 * time.Second, "/a"},
		[]any{cfg.NormalizePaths, cfg.DenyFile, cfg.StateFile, fmt.Sprint(cfg.Allow), cfg.TLS, cfg.DrainDelay,
			cfg.SendTimeout, cfg.StateEvery, cfg.AddressPath})
	assert.Equal(t, []int{20, 21, 22, 23, 24}, []int{g.MaxKeysPerClient, cfg.MaxConns, cfg.MaxConnsPerAddr,
		cfg.MaxInFlight, cfg.MaxInFlightPerClient})
	assert.Equal(t, proxy.Overload{On: true, Goal: 30 * time.Millisecond}, cfg.Overload)
	assert.Equal(t, []proxy.Classed{{Pattern: "/a", Class: 1}, {Pattern: "/b", Class: -1}}, cfg.Classes)
	assert.Equal(t, proxy.Bodies{Max: 25, Rate: 26}, cfg.Bodies)
	assert.Equal(t, httplimit.CORS{Origins: []string{"https://a.example"}, Credentials: true}, g.CORS)
	assert.Equal(t, []any{true, true}, []any{g.CountPreflights, g.AdmitFull})

	require.NoError(t, cmd.ParseFlags([]string{"--rules", "r.yaml", "--domain", "d", "--merge-domains",
		"--algorithm", "sliding_log"}))
	_, err = f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "--limit and --rules exclude each other")
	require.NoError(t, f.limits.set(&cfg))
	assert.Equal(t, []string{"r.yaml"}, cfg.Rules.Paths)
	assert.Equal(t, rules.Loader{MergeDomains: true, Algorithm: rules.SlidingLog}, cfg.Rules.Loader)
	assert.ErrorContains(t, cmd.ParseFlags([]string{"--algorithm", "moon"}), "want fixed_window, ")
	_, err = cfg.Rules.Choose(new(rules.Set))
	assert.ErrorContains(t, err, `no domain "d"`)

	set := 0
	cmd.Flags().Visit(func(*pflag.Flag) { set++ })
	all := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// these also set the response, and only one can
		if f.Name != "mochiweb" && f.Name != "denied-page" && f.Name != "help" && f.Name != "print-config" {
			all++
		}
	})
	assert.Equal(t, all, set, "this test must set every flag")
}

// TestDefaultsOfTheProxy pins those that bound what a client can do, of which the help gives the
// numbers.
func TestDefaultsOfTheProxy(t *testing.T) {
	cfg, err := ProxyConfig([]string{"--limit", "20/4s", "--admin", "off"})
	require.NoError(t, err)
	assert.Equal(t, rule.Default, cfg.Limits[0].Strategy, "as in a replay")
	assert.Equal(t, []any{256, time.Minute, time.Minute, proxy.Bodies{Max: 32 << 20, Rate: 1 << 10}},
		[]any{cfg.MaxConnsPerAddr, cfg.SendTimeout, cfg.UpstreamTimeout, cfg.Bodies})
}

// TestMochiwebWithAStatusAndFields checks that --headers and --status override --mochiweb.
func TestMochiwebWithAStatusAndFields(t *testing.T) {
	for args, want := range map[string][2]any{
		"--mochiweb":                              {413, httplimit.HeadersNone},
		"--mochiweb --status 429":                 {429, httplimit.HeadersNone},
		"--mochiweb --headers legacy":             {413, httplimit.HeadersLegacy},
		"--status 418 --mochiweb --headers draft": {418, httplimit.HeadersDraft},
	} {
		cfg, err := ProxyConfig(strings.Split("--limit 1/1m "+args, " "))
		require.NoError(t, err)
		assert.Equal(t, want, [2]any{cfg.Guard.DeniedStatus, cfg.Guard.Headers}, args)
		assert.NotNil(t, cfg.Guard.Respond)
	}
}

func TestSecretsAreReadFromTheEnvironment(t *testing.T) {
	// Both end as a file does that they are often made of.
	t.Setenv("WEIR_REDIS_PASSWORD", "from the environment\n")
	t.Setenv("WEIR_REDIS_SENTINEL_PASSWORD", "the Sentinels' own\n")
	t.Setenv("WEIR_ADMIN_TOKEN", "0123456789abcdef\n")
	cfg, err := ProxyConfig([]string{"--limit", "1/1m", "--redis", "redis://r"})
	require.NoError(t, err)
	assert.Equal(t, "from the environment", cfg.Redis.Password)
	assert.Equal(t, "the Sentinels' own", cfg.Redis.SentinelPassword)
	assert.Equal(t, "0123456789abcdef", cfg.Admin.Token)
	var s serveFlags
	cmd := s.command()
	require.NoError(t, cmd.ParseFlags([]string{"--rules", "r"}))
	require.NoError(t, s.complete(cmd))
	assert.Equal(t, cfg.Admin.Token, s.cfg.AdminToken)
	require.NoError(t, s.redis.setPasswords())
	assert.Equal(t, cfg.Redis.Password, s.redis.cfg.Password)
	assert.Equal(t, cfg.Redis.SentinelPassword, s.redis.cfg.SentinelPassword)
}

func TestHelpFitsIn100Columns(t *testing.T) {
	var out bytes.Buffer
	for _, cmd := range []*cobra.Command{newProxy(), newServe()} {
		before := out.Len()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--help"})
		require.NoError(t, cmd.Execute())
		head, _, found := strings.Cut(out.String()[before:], "\n      --")
		assert.True(t, found)
		assert.Less(t, strings.Count(head, "\n"), 24, "a screen before the flags of %s", cmd.Name())
	}
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100, line)
	}
	for _, text := range []string{"/-/metrics", `"what"`, `"for"`, "7d", "--max-conns", "SIGHUP"} {
		assert.Contains(t, out.String(), text)
	}
}

// TestSharedFlags checks that flags with the same meaning have the same text.
func TestSharedFlags(t *testing.T) {
	one, other := newProxy().Flags(), newServe().Flags()
	for _, name := range []string{"rules", "merge-domains", "admin-token-file", "tls-key",
		"max-buckets", "redis",
		"redis-password-file", "redis-sentinel-password-file", "redis-prefix", "redis-timeout"} {
		require.NotNil(t, other.Lookup(name), name)
		assert.Equal(t, one.Lookup(name).Usage, other.Lookup(name).Usage, name)
	}
}

// TestServeListensOnLoopback checks that a server with default flags is reachable only from the
// same machine.
func TestServeListensOnLoopback(t *testing.T) {
	for _, cmd := range []*cobra.Command{newServe(), newProxy()} {
		for _, name := range []string{"grpc", "http", "admin", "listen"} {
			if flag := cmd.Flags().Lookup(name); flag != nil {
				host, _, err := net.SplitHostPort(flag.DefValue)
				require.NoError(t, err)
				assert.True(t, net.ParseIP(host).IsLoopback(), "%s --%s", cmd.Name(), name)
			}
		}
	}
}

// With rules every flag works but those that say a limit themselves, or how one counts on Redis.
func TestFlagsWithRules(t *testing.T) {
	for _, args := range [][]string{
		{"--penalty-box", "20/1m=10m"}, {"--headers", "legacy"}, {"--mochiweb"}, {"--jitter", "1s"},
		{"--count-if", "401"}, {"--cors-origin", "*"}, {"--count-preflights"}, {"--on-full", "admit"},
		{"--route", "/x cost=2"}, {"--max-in-flight-per-client", "2"}, {"--deny", "key:ann"},
	} {
		_, err := ProxyConfig(append(args, "--rules", "r.yaml"))
		assert.NoError(t, err, args)
	}
	for want, args := range map[string][]string{
		"--limit and --rules exclude":           {"--limit", "1/1m"},
		"--burst and --rules exclude":           {"--burst", "2"},
		"--redis-lease and --rules exclude":     {"--redis-lease", "2"},
		`--route "/x limit=1/1m" has a limit, `: {"--route", "/x limit=1/1m"},
	} {
		_, err := ProxyConfig(append(args, "--rules", "r.yaml"))
		assert.ErrorContains(t, err, want)
	}
}
