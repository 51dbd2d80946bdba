package main

import (
	"bufio"
	"bytes"
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
	assert.Contains(t, <-p.rest, "files read again")
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

// TestSIGHUPChangesTheSettingsOfTheFile changes the file that a proxy was started with: limits are
// in force with what they have counted.
func TestSIGHUPChangesTheSettingsOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("limit: all=2/1d\nroute: /login limit=1/1d\nstatus: 503\n")
	p := proxyProcess(t, file, "--status", "429")
	ask := func(path string) int {
		code, _ := get(t, p.front+path)
		return code
	}
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
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, p.Wait())
	text := <-p.rest
	assert.Equal(t, 2, strings.Count(text, `msg="settings changed"`), text)
}
