// Package redistest runs real Redis servers for tests, alone, as a Cluster or with a Sentinel, and
// puts a Proxy before them that fails in the ways a network does. Everything listens on free ports
// of the loopback interface, keeps its files in the test's own directory, and ends with the test. A
// missing redis-server fails the test: a test that was skipped has shown nothing.
package redistest

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the start of a server, and everything else that is waited for here.
const startTimeout = 20 * time.Second

// Server is a redis-server process. Its methods fail the test when they cannot do what they say.
type Server struct {
	Addr string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	log  *output
	done chan struct{} // closed when cmd has ended
}

// Start starts a server that persists nothing, with args added to its command line, and waits until
// it answers.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	var s *Server
	for range 3 { // A program that is no test may have taken the port.
		port := FreePort(t)
		s = &Server{
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			t:    t,
			args: append([]string{
				"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
				"--dir", t.TempDir(), "--daemonize", "no", "--protected-mode", "no",
			}, args...),
		}
		if s.start() {
			t.Cleanup(s.end)
			return s
		}
	}
	t.Fatalf("redis-server does not start:\n%s", s.log)
	return nil
}

// start runs the process and reports whether it came to answer.
func (s *Server) start() bool {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("these tests need redis-server (apt-get install redis-server): %v", err)
	}
	s.log = &output{}
	s.cmd = exec.Command(path, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("redis-server: %v", err)
	}
	done := make(chan struct{})
	s.done = done
	cmd := s.cmd
	go func() { _ = cmd.Wait(); close(done) }()
	const pause = 5 * time.Millisecond
	// The pause is between two looks.
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(pause) {
		select {
		case <-done:
			return false
		default:
		}
		if s.answers() {
			return true
		}
	}
	s.end()
	return false
}

// answers reports whether the server speaks. A wrong word is an answer too: the server may want a
// password.
func (s *Server) answers() bool {
	c, err := net.DialTimeout("tcp", s.Addr, 100*time.Millisecond)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	return err == nil && !bytes.HasPrefix(buf[:n], []byte("-LOADING"))
}

// Kill kills the process (SIGKILL) and waits until it has exited.
func (s *Server) Kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	<-s.done
}

// Restart starts a killed server again on its old address.
func (s *Server) Restart() {
	s.t.Helper()
	for range 3 {
		if s.start() {
			return
		}
	}
	s.t.Fatalf("redis-server does not start again:\n%s", s.log)
}

// Freeze stops the process (SIGSTOP): its sockets stay open and nothing answers, as on a machine
// that swaps. Only Unix can do it; elsewhere it fails the test.
func (s *Server) Freeze() { s.t.Helper(); s.signal(sigStop) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { s.t.Helper(); s.signal(sigCont) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redis-server: %v: %v", sig, err)
	}
}

// end kills the process if it runs. SIGKILL also ends a frozen process.
func (s *Server) end() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Client returns a client for the test's own commands, with the library's own settings. It is
// closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, DisableIdentity: true})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Do runs one command and returns its reply.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, DisableIdentity: true})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	v, err := c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("redis: %v: %v", args, err)
	}
	return v
}

// Info returns one field of INFO, and "" if there is none.
func (s *Server) Info(field string) string {
	s.t.Helper()
	text, _ := s.Do("info").(string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

// busPort is what the server was started with as --cluster-port.
func (s *Server) busPort() string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	s.t.Fatal("not a cluster node")
	return ""
}

func (s *Server) id() string { id, _ := s.Do("cluster", "myid").(string); return id }

// owns reports whether the node says that the slot is its own.
func (s *Server) owns(slot int64) bool {
	id := s.id()
	for _, r := range s.Do("cluster", "slots").([]any) {
		x := r.([]any) // from, to, master: host, port, id, …
		if x[0].(int64) <= slot && slot <= x[1].(int64) && x[2].([]any)[2] == id {
			return true
		}
	}
	return false
}

// Settled waits until a field of INFO has the value.
func Settled(t testing.TB, s *Server, field, value string) {
	t.Helper()
	Eventually(t, startTimeout, field+" becomes "+value, func() bool { return s.Info(field) == value })
}

// Eventually waits until ok, and fails the test when it takes longer than limit. It returns how
// long it took.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
	return time.Since(start)
}

// output records the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
