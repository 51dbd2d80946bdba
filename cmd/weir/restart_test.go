//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// load sends requests until its end, and counts those that were served. None may fail.
type load struct {
	sent, served atomic.Uint64
	end          func()
	failed       sync.Map // texts
}

// loadOf sends perSecond requests, by 20 clients that keep their connections.
func loadOf(url string, perSecond int) *load {
	const clients = 20
	l := new(load)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
			defer client.CloseIdleConnections()
			ticker := time.NewTicker(clients * time.Second / time.Duration(perSecond))
			defer ticker.Stop()
			for {
				select {
				case <-stop:
					return
				case <-ticker.C:
				}
				l.sent.Add(1)
				resp, err := client.Get(url)
				if err != nil {
					l.failed.Store(err.Error(), true)
					continue
				}
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					l.failed.Store(fmt.Sprint(resp.Status, err), true)
					continue
				}
				l.served.Add(1)
			}
		})
	}
	l.end = func() { close(stop); group.Wait() }
	return l
}

// check ends the load, and compares what was served with what the limit has counted.
func (l *load) check(t *testing.T, admin string) {
	t.Helper()
	l.end()
	l.failed.Range(func(text, _ any) bool { t.Error(text); return true })
	assert.Equal(t, l.sent.Load(), l.served.Load(), "all that were sent are served")
	_, body := get(t, admin+"/-/explain?key=127.0.0.1")
	var x cli.Explained
	require.NoError(t, json.Unmarshal([]byte(body), &x), body)
	require.Len(t, x.Limits, 1)
	assert.Equal(t, l.sent.Load(), x.Limits[0].Used, "each is counted once")
	t.Logf("%d requests", l.sent.Load())
}

// ends reports whether a process ends soon. It need not be a child, and may be a zombie.
func ends(pid int) bool {
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		if err != nil || strings.HasPrefix(state, "Z") {
			return true
		}
		time.Sleep(10 * time.Millisecond) // it polls another process
	}
	return false
}

// TestHandingOver has a proxy under load start its successor by SIGUSR2, again and again.
func TestHandingOver(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	defer upstream.Close()
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	p := proxyProcess(t, "--limit", "1000000/365d:fixed", "--upstream", upstream.URL, "--access-log", "off",
		"--state", filepath.Join(dir, "state"), "--pid-file", pidFile)
	serving := func() int {
		text, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		return pid
	}
	t.Cleanup(func() { _ = syscall.Kill(serving(), syscall.SIGKILL) })
	l := loadOf(p.front, 200)
	for range slow.N(2, 3, 10) {
		old := serving()
		require.NoError(t, syscall.Kill(old, syscall.SIGUSR2))
		require.True(t, ends(old))
		require.NotEqual(t, old, serving())
		time.Sleep(300 * time.Millisecond) // the load goes on
	}
	l.check(t, p.back)
}

// TestHandingOverFails has a successor that cannot start: the process goes on.
func TestHandingOverFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte("limit: 5/1d\n"), 0o600))
	p := proxyProcess(t, file)
	require.NoError(t, os.WriteFile(file, []byte("limit: nine\n"), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGUSR2))
	p.logged(t, `no other process takes over.*exit status 2`)
	assert.Equal(t, http.StatusOK, statusOf(t, p.front))
	p.stop(t)
}

// TestSocketActivation restarts a proxy under load whose sockets another process holds, as systemd
// does.
func TestSocketActivation(t *testing.T) {
	var files []*os.File
	var urls []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		file, err := l.(*net.TCPListener).File()
		require.NoError(t, err)
		urls = append(urls, "http://"+l.Addr().String())
		require.NoError(t, l.Close())
		defer file.Close()
		files = append(files, file)
	}
	state := filepath.Join(t.TempDir(), "state")
	start := func() *proxied {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=weir.socket:admin `+
			`exec weir proxy --limit 1000000/365d:fixed --access-log off --state "$0"`, state)
		cmd.ExtraFiles = files
		p := startProxy(t, cmd)
		require.Equal(t, urls, []string{p.front, p.back})
		return p
	}
	p := start()
	l := loadOf(p.front, 200)
	for range slow.N(2, 3, 10) {
		p.stop(t)
		p = start()
		time.Sleep(300 * time.Millisecond) // the load goes on
	}
	l.check(t, p.back)
	p.stop(t)
}
