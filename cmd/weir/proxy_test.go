package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is a running program that serves.
type process struct {
	*exec.Cmd
	stdout bytes.Buffer // read only after the process has ended
	rest   chan string  // its standard error after the line that says it serves
	lines  chan string  // the lines of that, for logged
}

// startProcess starts a program, and returns what serving matches in the first line of its standard
// error.
func startProcess(t *testing.T, cmd *exec.Cmd, serving string) (p *process, at []string) {
	t.Helper()
	p = &process{Cmd: cmd, rest: make(chan string, 1), lines: make(chan string, 100)}
	p.Stdout = &p.stdout
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() }) // in case it is still running
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	require.NoError(t, err, line)
	at = regexp.MustCompile(serving).FindStringSubmatch(line)
	require.NotNil(t, at, line)
	go func() {
		var text strings.Builder
		for err == nil {
			line, err = r.ReadString('\n')
			text.WriteString(line)
			select {
			case p.lines <- line:
			default: // nobody waits for them
			}
		}
		close(p.lines)
		p.rest <- text.String()
	}()
	return p, at
}

// logged waits for a line that matches.
func (p *process) logged(t *testing.T, match string) {
	t.Helper()
	for line := range p.lines {
		if regexp.MustCompile(match).MatchString(line) {
			return
		}
	}
	t.Error("the program ended without a line like", match)
}

// stop ends the program and returns the rest of its standard error.
func (p *process) stop(t *testing.T) string {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	rest := <-p.rest
	assert.NoError(t, p.Wait(), "exit 0")
	return rest
}

// proxied is a running weir proxy.
type proxied struct {
	*process
	front, back string // URLs of the two listeners
}

// proxyProcess starts the proxy on free ports.
func proxyProcess(t *testing.T, args ...string) *proxied {
	t.Helper()
	return startProxy(t, proxyCommand(args...))
}

// proxyCommand returns the command of a proxy on free ports. The test binary is on the PATH as
// weir; see TestMain.
func proxyCommand(args ...string) *exec.Cmd {
	return exec.Command("weir",
		append([]string{"proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
}

func startProxy(t *testing.T, cmd *exec.Cmd) *proxied {
	t.Helper()
	p, at := startProcess(t, cmd, `msg=serving listen=(\S+).* admin=(\S+)/-/`)
	return &proxied{p, at[1], at[2]}
}

// statusOf returns that of a GET.
func statusOf(t *testing.T, url string) int {
	t.Helper()
	code, _ := get(t, url)
	return code
}

// TestSIGTERM checks that after SIGTERM the request in flight finishes, meanwhile new connections
// are refused, and the process exits without an error.
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
	assert.Equal(t, http.StatusTooManyRequests, statusOf(t, p.front))

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		resp, err := http.Get(p.back + "/-/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.front, "http://"))
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		_ = conn.Close()
		return false
	}, 10*time.Second, time.Millisecond, "new connections are refused")
	close(release)
	assert.Equal(t, "whole", <-body)
	rest := <-p.rest
	assert.NoError(t, p.Wait(), "exit 0")
	assert.Contains(t, rest, "msg=stopping in_flight=1")
	assert.Contains(t, rest, "msg=stopped")
	assert.Equal(t, 2, strings.Count(p.stdout.String(), "msg=request"))
	assert.Contains(t, p.stdout.String(), "status=200")
	assert.Contains(t, p.stdout.String(), "status=429")
}

// TestStateOverARestart checks that with a state file a caller over the limit is still over it
// after a restart.
func TestStateOverARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	start := func() *proxied { return proxyProcess(t, "--limit", "1/1d", "--state", state) }
	p := start()
	assert.Equal(t, http.StatusOK, statusOf(t, p.front))
	p.stop(t)
	info, err := os.Stat(state)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	p = start()
	assert.Equal(t, http.StatusTooManyRequests, statusOf(t, p.front))
	p.stop(t)

	damaged, err := os.ReadFile(state)
	require.NoError(t, err)
	damaged = damaged[:len(damaged)-1]
	require.NoError(t, os.WriteFile(state, damaged, 0o600))
	p = start()
	assert.Equal(t, http.StatusOK, statusOf(t, p.front), "it serves nevertheless")
	assert.Contains(t, p.stop(t), "state not loaded; the file is kept")
	kept, err := os.ReadFile(state + ".bad-1")
	require.NoError(t, err)
	assert.Equal(t, damaged, kept)
	files, err := filepath.Glob(state + "*")
	require.NoError(t, err)
	assert.Len(t, files, 2, "no temporary files are left")
	p = start()
	assert.Equal(t, http.StatusTooManyRequests, statusOf(t, p.front), "the counts since are saved")
	p.stop(t)
}

// TestStateOfAProcessThatIsKilled checks that a second process on a state file is refused while the
// first one runs, and that a kill unlocks the file.
func TestStateOfAProcessThatIsKilled(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	start := func() *proxied { return proxyProcess(t, "--limit", "1/1d", "--state", state) }
	p := start()
	second := proxyCommand("--limit", "1/1d", "--state", state)
	said, err := second.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 2, second.ProcessState.ExitCode())
	assert.Contains(t, string(said), "weir: state: "+state+" is in use by another process\n")

	require.NoError(t, p.Process.Kill())
	<-p.rest
	require.Error(t, p.Wait())
	assert.NotContains(t, start().stop(t), "state")
	files, err := filepath.Glob(state + "*")
	require.NoError(t, err)
	assert.Len(t, files, 1, "the lock is gone")
}

// TestSIGHUP checks that SIGHUP reads the files again and does not end the process.
func TestSIGHUP(t *testing.T) {
	list := filepath.Join(t.TempDir(), "deny")
	p := proxyProcess(t, "--limit", "100/1d", "--deny-file", list)
	assert.Equal(t, http.StatusOK, statusOf(t, p.front))
	require.NoError(t, os.WriteFile(list, []byte("127.0.0.1\n"), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	assert.Eventually(t, func() bool {
		return statusOf(t, p.front) == http.StatusForbidden
	}, 10*time.Second, 5*time.Millisecond)
	assert.Contains(t, p.stop(t), "files read again")
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
	p := startProxy(t, limited)
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
	assert.NotContains(t, p.stop(t), "too many open files")
}

// TestSIGHUPChangesTheSettingsOfTheFile changes the file that a proxy was started with: limits are
// in force with what they have counted.
func TestSIGHUPChangesTheSettingsOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("limit: all=2/1d\nroute: /login limit=1/1d\nstatus: 503\n")
	p := proxyProcess(t, file, "--status", "429")
	ask := func(path string) int { return statusOf(t, p.front+path) }
	limits := func() string {
		_, text := get(t, p.back+"/-/stats")
		return text
	}
	hangUp := func(until func() bool) {
		require.NoError(t, p.Process.Signal(syscall.SIGHUP))
		require.Eventually(t, until, 10*time.Second, 5*time.Millisecond)
	}
	for _, want := range []int{200, 200, 429} {
		assert.Equal(t, want, ask("/a"))
	}
	assert.Equal(t, []int{200, 429}, []int{ask("/login"), ask("/login")})

	write("limit: all=3/1d\ntry: 1/1d\nmax-in-flight-per-client: 9\nheaders: none\n")
	hangUp(func() bool { return strings.Contains(limits(), `"limit":"3/1d"`) })
	assert.Equal(t, []int{200, 429, 429}, []int{ask("/a"), ask("/a"), ask("/login")},
		"the limit is higher by one, and has the status of the command line; the route is gone")
	assert.Contains(t, limits(), `"try":{"limits":[{"name":"1/1d"`)

	write("limit: all=4/1d\n")
	hangUp(func() bool { return strings.Contains(limits(), `"limit":"4/1d"`) })
	assert.Equal(t, []int{200, 429}, []int{ask("/a"), ask("/a")})
	text := p.stop(t)
	assert.Equal(t, 2, strings.Count(text, `msg="settings changed"`), text)
}
