package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
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
		cmd.ParseFlags(strings.Split("--listen :1 --upstream http://u:2/x --limit a=1/1m --limit "+
			"2/1h:leaky "+
			"--strategy token --burst 3 --queue 4 --route /r --by path --trust 10.0.0.0/8,::1 --forwarded "+
			"--ipv6-prefix 56 "+
			"--deny 192.0.2.1,k --max-deny 5 --penalty-box 6/1m=7m --headers legacy --status 418 "+
			"--jitter 8s "+
			"--count-if 401 "+
			"--fail open --shadow --preserve-host --upstream-timeout 9s --drain 10s --max-buckets 11 "+
			"--keep 12s "+
			"--sweep-every 13s "+
			"--access-log json --log-keys --admin 127.0.0.1:14 --admin-token-file "+token+
			" --admin-remote --admin-host h "+
			"--redis redis://r --instances 15 --on-redis-failure closed --redis-prefix p: "+
			"--redis-timeout 16ms "+
			"--redis-probe 17s "+
			"--redis-lease 18 --redis-denials 19 --redis-password-file "+token+
			" --normalize-paths --max-keys 20 --allow 192.0.2.9 --deny-file d "+
			"--cors-origin https://a.example --cors-credentials --count-preflights --on-full admit "+
			"--tls-cert c "+
			"--tls-key k --max-conns 21 "+
			"--max-conns-per-ip 22 --max-in-flight 23 --max-in-flight-per-client 24 --max-body 25 "+
			"--body-rate 26 "+
			"--drain-delay 27s --state s --send-timeout 28s --address-path /a", " ")))
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, err)

	assert.Equal(t, ":1", cfg.Listen)
	assert.Equal(t, "http://u:2/x", cfg.Upstream.String())
	assert.Equal(t, "1/1m token burst 3", cfg.Limits[0].Rule.String())
	assert.Equal(t, "a", cfg.Limits[0].Name)
	assert.Equal(t, "2/1h leaky burst 4", cfg.Limits[1].Rule.String())
	assert.Equal(t, "/r", cfg.Routes[0].Pattern)
	assert.Equal(t, "path", cfg.By.String())
	assert.Equal(t, "[10.0.0.0/8 ::1/128]", fmt.Sprint(cfg.Trust))
	assert.Equal(t, []any{true, 56, 5}, []any{cfg.Forwarded, cfg.IPv6Bits, cfg.MaxDeny})
	assert.Equal(t, []httplimit.Entry{{Prefix: netip.MustParsePrefix("192.0.2.1/32")}, {Key: "k"}},
		cfg.Deny)
	assert.Equal(t, proxy.Penalty{Denials: 6, Within: time.Minute, For: 7 * time.Minute}, cfg.Penalty)
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
	assert.Equal(t, proxy.Redis{URL: "redis://r", Password: "0123456789abcdef", Prefix: "p:",
		Fallback: fallback.Config{
			OnFail: fallback.FailClosed, Instances: 15, Timeout: 16 * time.Millisecond,
			ProbeInterval: 17 * time.Second,
		}, Lease: 18, Denials: 19}, cfg.Redis)

	assert.Equal(t, []any{true, "d", "s", "[192.0.2.9/32]", proxy.TLS{Cert: "c", Key: "k"},
		27 * time.Second,
		28 * time.Second, "/a"},
		[]any{cfg.NormalizePaths, cfg.DenyFile, cfg.StateFile, fmt.Sprint(cfg.Allow), cfg.TLS,
			cfg.DrainDelay,
			cfg.SendTimeout, cfg.AddressPath})
	assert.Equal(t, []int{20, 21, 22, 23, 24},
		[]int{g.MaxKeysPerClient, cfg.MaxConns, cfg.MaxConnsPerAddr,
			cfg.MaxInFlight, cfg.MaxInFlightPerClient})
	assert.Equal(t, proxy.Bodies{Max: 25, Rate: 26}, cfg.Bodies)
	assert.Equal(t, httplimit.CORS{Origins: []string{"https://a.example"}, Credentials: true}, g.CORS)
	assert.Equal(t, []any{true, httplimit.FullAdmit}, []any{g.CountPreflights, g.OnFull})

	require.NoError(t, cmd.ParseFlags([]string{"--rules", "r.yaml", "--domain", "d",
		"--merge-domains"}))
	_, err = f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "--limit and --rules exclude each other")
	require.NoError(t, f.setTraffic(&cfg))
	assert.Equal(t, []any{[]string{"r.yaml"}, true},
		[]any{cfg.Rules.Paths, cfg.Rules.Loader.MergeDomains})
	_, err = cfg.Rules.Domain(new(rules.Set))
	assert.ErrorContains(t, err, `no domain "d"`)

	set := 0
	cmd.Flags().Visit(func(*pflag.Flag) { set++ })
	all := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// these also set the response, and only one can
		if f.Name != "mochiweb" && f.Name != "denied-page" && f.Name != "help" {
			all++
		}
	})
	assert.Equal(t, all, set, "this test must set every flag")
}

// TestDefaultsOfTheProxy pins those that bound what a client can do, of which the help gives the
// numbers. A limit means the same in a replay.
func TestDefaultsOfTheProxy(t *testing.T) {
	var f proxyFlags
	cmd := f.command()
	require.NoError(t, cmd.ParseFlags([]string{"--limit", "20/4s", "--admin", "off"}))
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, rule.Sliding, cfg.Limits[0].Strategy)
	assert.Equal(t, []any{256, time.Minute, time.Minute, proxy.Bodies{Max: 32 << 20, Rate: 1 << 10}},
		[]any{cfg.MaxConnsPerAddr, cfg.SendTimeout, cfg.UpstreamTimeout, cfg.Bodies})
	assert.Equal(t, "["+rule.Sliding+"]", newReplay().Flags().Lookup("strategy").DefValue)
}

// TestMochiwebWithAStatusAndFields checks that --headers and --status override --mochiweb.
func TestMochiwebWithAStatusAndFields(t *testing.T) {
	for args, want := range map[string][2]any{
		"--mochiweb":                              {413, httplimit.HeadersNone},
		"--mochiweb --status 429":                 {429, httplimit.HeadersNone},
		"--mochiweb --headers legacy":             {413, httplimit.HeadersLegacy},
		"--status 418 --mochiweb --headers draft": {418, httplimit.HeadersDraft},
	} {
		var f proxyFlags
		cmd := f.command()
		require.NoError(t, cmd.ParseFlags(strings.Split("--limit 1/1m "+args, " ")))
		cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
		require.NoError(t, err)
		assert.Equal(t, want, [2]any{cfg.Guard.DeniedStatus, cfg.Guard.Headers}, args)
		assert.NotNil(t, cfg.Guard.Respond)
	}
}

func TestSecretsAreReadFromTheEnvironment(t *testing.T) {
	// Both end as a file does that they are often made of.
	t.Setenv("WEIR_REDIS_PASSWORD", "from the environment\n")
	t.Setenv("WEIR_ADMIN_TOKEN", "0123456789abcdef\n")
	var f proxyFlags
	cmd := f.command()
	require.NoError(t, cmd.ParseFlags([]string{"--limit", "1/1m", "--redis", "redis://r"}))
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "from the environment", cfg.Redis.Password)
	assert.Equal(t, "0123456789abcdef", cfg.Admin.Token)
	var s serveFlags
	cmd = s.command()
	require.NoError(t, cmd.ParseFlags([]string{"--rules", "r"}))
	require.NoError(t, s.complete(cmd))
	assert.Equal(t, cfg.Admin.Token, s.cfg.AdminToken)
	password, err := s.redis.password()
	require.NoError(t, err)
	assert.Equal(t, cfg.Redis.Password, password)
}

func TestHelpFitsIn100Columns(t *testing.T) {
	var out bytes.Buffer
	for _, cmd := range []*cobra.Command{newProxy(), newServe(), newReplay(), newRulesExplain()} {
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--help"})
		require.NoError(t, cmd.Execute())
	}
	for line := range strings.Lines(out.String()) {
		assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100, line)
	}
	for _, text := range []string{"/-/metrics", `"what"`, `"for"`, "7d", "--max-conns", "SIGHUP",
		"csv:endpoints"} {
		assert.Contains(t, out.String(), text)
	}
}

// TestSharedFlags checks that flags with the same meaning have the same text.
func TestSharedFlags(t *testing.T) {
	one, other := newProxy().Flags(), newServe().Flags()
	for _, name := range []string{"rules", "merge-domains", "admin-token-file", "tls-key",
		"max-buckets", "redis",
		"redis-password-file", "redis-prefix", "redis-timeout"} {
		require.NotNil(t, other.Lookup(name), name)
		assert.Equal(t, one.Lookup(name).Usage, other.Lookup(name).Usage, name)
	}
}

// process is a running weir proxy.
type process struct {
	*exec.Cmd
	front, back string        // URLs of the two listeners
	access      *bytes.Buffer // read only after the process has ended
	rest        chan string   // its standard error after the line that says it serves
}

var serving = regexp.MustCompile(`msg=serving listen=(\S+).* admin=(\S+)/-/`)

// proxyProcess starts the proxy on free ports.
func proxyProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcess(t, proxyCommand(args...))
}

// proxyCommand returns the command of a proxy on free ports. The test binary is on the PATH as
// weir; see TestMain.
func proxyCommand(args ...string) *exec.Cmd {
	return exec.Command("weir",
		append([]string{"proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
}

// startProcess starts a proxy and waits until it serves.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, access: new(bytes.Buffer), rest: make(chan string, 1)}
	p.Stdout = p.access
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() }) // in case it is still running
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	found := serving.FindStringSubmatch(line)
	require.NotNil(t, found, line)
	p.front, p.back = found[1], found[2]
	go func() {
		text, _ := io.ReadAll(r)
		p.rest <- string(text)
	}()
	return p
}

// TestSIGTERM checks that after SIGTERM the request in flight finishes and the process exits
// without an error.
func TestSIGTERM(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "whole")
	}))
	defer upstream.Close()
	p := proxyProcess(t, "--limit", "1/1d", "--upstream", upstream.URL)
	body := make(chan string, 1)
	go func() {
		resp, err := http.Get(p.front)
		if err != nil {
			body <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		body <- string(text)
	}()
	<-arrived
	resp, err := http.Get(p.front)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		resp, err := http.Get(p.back + "/-/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, 10*time.Second, time.Millisecond)
	close(release)
	assert.Equal(t, "whole", <-body)
	rest := <-p.rest
	assert.NoError(t, p.Wait(), "exit 0")
	assert.Contains(t, rest, "msg=stopping in_flight=1")
	assert.Contains(t, rest, "msg=stopped")
	assert.Equal(t, 2, strings.Count(p.access.String(), "msg=request"))
	assert.Contains(t, p.access.String(), "status=200")
	assert.Contains(t, p.access.String(), "status=429")
}

// TestStateOverARestart checks that with a state file a caller over the limit is still over it
// after a restart.
func TestStateOverARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	start := func() *process { return proxyProcess(t, "--limit", "1/1d", "--state", state) }
	ask := func(p *process) int {
		resp, err := http.Get(p.front)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	stop := func(p *process) (said string) {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		said = <-p.rest
		require.NoError(t, p.Wait())
		return said
	}
	p := start()
	assert.Equal(t, http.StatusOK, ask(p))
	stop(p)
	info, err := os.Stat(state)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	p = start()
	assert.Equal(t, http.StatusTooManyRequests, ask(p))
	stop(p)

	damaged, err := os.ReadFile(state)
	require.NoError(t, err)
	damaged = damaged[:len(damaged)-1]
	require.NoError(t, os.WriteFile(state, damaged, 0o600))
	p = start()
	assert.Equal(t, http.StatusOK, ask(p), "it serves nevertheless")
	assert.Contains(t, stop(p), "state not loaded; the file is kept")
	kept, err := os.ReadFile(state)
	require.NoError(t, err)
	assert.Equal(t, damaged, kept)
	files, err := filepath.Glob(state + "*")
	require.NoError(t, err)
	assert.Len(t, files, 1, "no temporary files are left")
}

// TestStateOfAProcessThatIsKilled checks that a second process on a state file is refused while the
// first one runs, and that a kill unlocks the file.
func TestStateOfAProcessThatIsKilled(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	start := func() *process { return proxyProcess(t, "--limit", "1/1d", "--state", state) }
	p := start()
	second := proxyCommand("--limit", "1/1d", "--state", state)
	said, err := second.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 2, second.ProcessState.ExitCode())
	assert.Contains(t, string(said), "weir: state: "+state+" is in use by another process\n")

	require.NoError(t, p.Process.Kill())
	<-p.rest
	require.Error(t, p.Wait())
	p = start()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.NotContains(t, <-p.rest, "state")
	require.NoError(t, p.Wait())
	files, err := filepath.Glob(state + "*")
	require.NoError(t, err)
	assert.Len(t, files, 1, "the lock is gone")
}

// TestSIGHUP checks that SIGHUP reads the files again and does not end the process.
func TestSIGHUP(t *testing.T) {
	list := filepath.Join(t.TempDir(), "deny")
	p := proxyProcess(t, "--limit", "100/1d", "--deny-file", list)
	ask := func() int {
		resp, err := http.Get(p.front)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusOK, ask())
	require.NoError(t, os.WriteFile(list, []byte("127.0.0.1\n"), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	assert.Eventually(t, func() bool {
		return ask() == http.StatusForbidden
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, p.Wait())
	assert.Contains(t, <-p.rest, "msg=reloaded")
}

// TestSecondSignal checks that a second signal ends the process at once.
func TestSecondSignal(t *testing.T) {
	arrived := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer upstream.Close()
	p := proxyProcess(t, "--limit", "1/1d", "--upstream", upstream.URL, "--drain", "1h")
	go func() { _, _ = http.Get(p.front) }()
	<-arrived
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		_ = p.Process.Signal(syscall.SIGTERM)
		return p.Process.Signal(syscall.Signal(0)) != nil || len(p.rest) == 1
	}, 10*time.Second, 10*time.Millisecond)
	assert.ErrorContains(t, p.Wait(), "terminated")
}

// TestSilentConnectionsStarveNoPort holds more connections to each port than the process may have
// files.
func TestSilentConnectionsStarveNoPort(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	cmd := proxyCommand("--limit", "1000/1d", "--upstream", upstream.URL, "--trust", "127.0.0.1")
	limited := exec.Command("sh",
		append([]string{"-c", `ulimit -n 200 && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
	limited.Env = cmd.Env
	p := startProcess(t, limited)
	for _, url := range []string{p.front, p.back} {
		for range 300 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		Timeout: 20 * time.Second}
	for range 20 {
		for _, url := range []string{p.front, p.back + "/-/healthz"} {
			resp, err := client.Get(url)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 200, resp.StatusCode)
		}
	}
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait())
	assert.NotContains(t, <-p.rest, "too many open files")
}
