package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	bareName    = "httputil.ReverseProxy"
	connections = 8
	bodySize    = 1 << 10
)

// buffers is a BufferPool, as weir proxy has one.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

func serveBare(addr, upstream string) error {
	target, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
	if *pool {
		proxy.BufferPool = &buffers{}
	}
	return http.ListenAndServe(addr, proxy) //nolint:gosec // a benchmark
}

func startUpstream() (*httptest.Server, error) {
	body := []byte(strings.Repeat("x", bodySize))
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})), nil
}

// server is a running proxy.
type server struct {
	name   string
	args   []string                // of its process, to which its address is added if config is nil
	env    []string                // of its process, beside that of this one
	config func(addr string) error // writes its configuration; nil: none
	denied bool                    // it denies all requests
	most   float64                 // times the CPU of the bare one; 0: no bar
	addr   string
	cmd    *exec.Cmd
	cpu    []float64 // of a request, in µs, by turn
}

func (s *server) start(ctx context.Context, dir string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	_ = l.Close()
	args := s.args
	if s.config == nil {
		args = append(args, s.addr)
	} else if err := s.config(s.addr); err != nil {
		return err
	}
	log, err := os.CreateTemp(dir, "log")
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	s.cmd.Stdout = log
	s.cmd.Env = append(os.Environ(), s.env...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 200 {
		if conn, err := net.Dial("tcp", s.addr); err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond) // another process begins to listen
	}
	return errors.New("it does not listen")
}

func stop(servers []*server) {
	for _, s := range servers {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// measure sends n requests, after a fifth of them for warming up, and returns the CPU of each.
func (s *server) measure(n int) (time.Duration, error) {
	if err := s.load(n / 5); err != nil {
		return 0, err
	}
	time.Sleep(settle) // the server ends what it does after its answers
	before := cpuOf(s.cmd.Process.Pid)
	if err := s.load(n); err != nil {
		return 0, err
	}
	time.Sleep(settle) // the server ends what it does after its answers
	return (cpuOf(s.cmd.Process.Pid) - before) / time.Duration(n), nil
}

// load sends n requests over connections, one after the other on each.
func (s *server) load(n int) error {
	errs := make([]error, connections)
	var group sync.WaitGroup
	for i := range connections {
		group.Go(func() { errs[i] = s.client(n / connections) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// client sends n requests with the fields of a browser over one connection.
func (s *server) client(n int) error {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := []byte("GET /a/path?with=a&query HTTP/1.1\r\nHost: " + s.addr + "\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-US,en;q=0.5\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\nCookie: session=0123456789abcdef\r\n\r\n")
	r := bufio.NewReader(conn)
	for range n {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		got, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return err
		case s.denied && resp.StatusCode == http.StatusTooManyRequests:
		case s.denied || resp.StatusCode != http.StatusOK || got != bodySize:
			return fmt.Errorf("got %s with %d bytes", resp.Status, got)
		}
	}
	return nil
}

// tick is the unit of the CPU times in /proc/PID/stat.
const tick = time.Second / 100

// cpuOf returns the CPU time of a process and its children, user and system, which have not ended.
func cpuOf(pid int) (total time.Duration) {
	of := []int{pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // nginx has workers
	for _, child := range strings.Fields(string(children)) {
		id, _ := strconv.Atoi(child)
		of = append(of, id)
	}
	for _, id := range of {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
		_, after, _ := strings.Cut(string(text), ") ") // the process name may contain spaces
		fields := strings.Fields(after)
		if len(fields) < 13 {
			continue
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		total += time.Duration(user+system) * tick
	}
	return total
}

// nginxConfig writes the configuration of an nginx with one worker.
func nginxConfig(dir, upstream string) func(addr string) error {
	return func(addr string) error {
		text := fmt.Sprintf(`daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log;
events {}
http {
	access_log off;
	keepalive_requests 100000000;
	limit_req_zone $binary_remote_addr zone=one:10m rate=1000000r/s;
	upstream up {
		server %[2]s;
		keepalive 64;
		keepalive_requests 100000000;
	}
	server {
		listen %[3]s;
		location / {
			limit_req zone=one burst=1000 nodelay;
			proxy_pass http://up;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $remote_addr;
		}
	}
}
`, dir, strings.TrimPrefix(upstream, "http://"), addr)
		return os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(text), 0o644)
	}
}

// caddyConfig writes a Caddyfile with these lines before the upstream.
func caddyConfig(name, lines, upstream string) func(addr string) error {
	return func(addr string) error {
		text := fmt.Sprintf(`{
	admin off
	persist_config off
	log {
		level ERROR
	}
}
http://%s {
	%s
	reverse_proxy %s
}
`, addr, lines, upstream)
		return os.WriteFile(name, []byte(text), 0o644)
	}
}
