package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

const (
	soakMemory  = 512 << 20 // maximum resident set of the proxy, in bytes
	soakHealth  = 50 * time.Millisecond
	soakLimit   = 20 // requests per caller and day
	soakCallers = 30
)

// TestSoak runs the proxy in its own process with attackers and clients at the same time: slow
// bodies, slow readers, silent connections, upgrades, hang-ups, resets, a million addresses, and
// callers that send twice their limit. Every health check must be answered, 49 of 50 in time, and
// half of the requests within the allowance of a handler that does nothing; memory must stay below
// soakMemory, open files must return, and exactly the limit of each caller's requests must reach
// the upstream. That one connection waits longer than those beside it is chance on a machine as
// busy as this makes it.
func TestSoak(t *testing.T) {
	slow.Test(t)
	var reached sync.Map // number of requests, by caller
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 32<<10))
			}
		}
		if caller := r.Header.Get("X-Caller"); caller != "" {
			n, _ := reached.LoadOrStore(caller, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer upstream.Close()
	p := controlledProxy(t, "--limit", fmt.Sprintf("%d/1d", soakLimit), "--upstream", upstream.URL,
		"--access-log", "off", "--trust", "127.0.0.0/8", "--max-conns", "1000",
		"--max-in-flight-per-client", "50", "--body-rate", "100", "--send-timeout", "2s", "--drain", "5s")
	idle := controlledProxy(t, "--limit", "1/1d", "--access-log", "off")
	s := &soak{addr: strings.TrimPrefix(p.front, "http://")}
	filesBefore := openFiles(t, p.Process.Pid)
	length := time.Duration(slow.N(30, 30, 300)) * time.Second
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	for n, attack := range map[int]func(context.Context){
		250: s.slowBody, 600: s.silent, 10: s.upgrade, 11: s.hangUp, 4: s.addresses, 50: s.slowReader,
		12: s.reset,
	} {
		for range n {
			s.all.Go(func() { attack(ctx) })
		}
	}
	var probes []probe
	s.all.Go(func() {
		for ctx.Err() == nil {
			probe := newProbe(p.back+"/-/healthz", p.control, idle.control)
			probe.served = s.through(p.front)
			probes = append(probes, probe)
			wait(ctx, 50*time.Millisecond)
		}
	})
	for i := range soakCallers {
		s.all.Go(func() { s.caller(ctx, length, i) })
	}
	s.all.Wait()

	for i := range soakCallers {
		n, ok := reached.Load(strconv.Itoa(i))
		require.True(t, ok)
		assert.EqualValues(t, soakLimit, n.(*atomic.Int64).Load(), "caller %d", i)
	}
	require.Eventually(t, func() bool {
		return openFiles(t, p.Process.Pid) <= filesBefore+10
	}, time.Minute,
		100*time.Millisecond, "the descriptors return")
	peak := peakMemory(t, p.Process.Pid)
	t.Logf("files: %d before, %d after; memory after: %d MiB", filesBefore,
		openFiles(t, p.Process.Pid),
		memory(t, p.Process.Pid, "VmRSS:")>>20)
	t.Logf("%d health checks; %d requests of the million addresses; peak memory %d MiB",
		len(probes), s.served.Load(), peak>>20)
	for _, of := range []struct {
		name string
		took func(probe) time.Duration
	}{
		{"health check", func(p probe) time.Duration { return p.health }},
		{"request through the proxy", func(p probe) time.Duration { return p.served }},
		{"control of this process", func(p probe) time.Duration { return p.control }},
		{"control of an idle process", func(p probe) time.Duration { return p.idle }},
	} {
		t.Logf("%s: median %v, slowest %v", of.name, median(probes, of.took),
			slices.Max(durations(probes, of.took)))
	}
	require.NotEmpty(t, probes)
	assert.LessOrEqual(t, median(probes, func(p probe) time.Duration { return p.served - p.control }),
		allowance(probes), "requests are late")
	for _, p := range probes {
		assert.NoError(t, p.err, "a health check failed")
	}
	late := lateProbes(probes)
	assert.LessOrEqual(t, len(late), 1+len(probes)/50, "health checks are late: %+v", late)
	assert.LessOrEqual(t, median(probes, func(p probe) time.Duration { return p.control - p.idle }),
		allowance(probes), "the process as a whole is slow")
	most := soakMemory
	if slow.Race {
		most *= 6 // the race detector multiplies the memory of a process by 5 to 10
	}
	assert.Less(t, peak, most)
	for _, proxy := range []*controlled{p, idle} {
		proxy.stop(t)
	}
}

// TestSoakNoticesALateHealthCheck is the negative control: an endpoint slower than a health check
// may be is found to be late.
func TestSoakNoticesALateHealthCheck(t *testing.T) {
	p := controlledProxy(t, "--limit", "1/1d", "--access-log", "off")
	assert.Len(t, lateProbes([]probe{newProbe(p.control+"/late", p.control, p.control)}), 1)
	assert.Len(t, lateProbes([]probe{newProbe(p.control+"/missing", p.control, p.control)}), 1)
}

// controlled is a proxy whose process also serves a handler that does nothing. The handler's
// response times show how long the machine and the Go runtime delay any response of this process.
type controlled struct {
	*proxied
	control string // its URL
}

// controlVariable makes the child process serve the control on file descriptor 3.
const controlVariable = "WEIR_TEST_CONTROL"

func controlledProxy(t *testing.T, args ...string) *controlled {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	cmd := proxyCommand(args...)
	cmd.Env = append(os.Environ(), controlVariable+"=1")
	cmd.ExtraFiles = []*os.File{file}
	p := startProxy(t, cmd)
	require.NoError(t, errors.Join(l.Close(), file.Close()))
	return &controlled{p, "http://" + l.Addr().String()}
}

// serveControl serves the control if controlVariable is set.
func serveControl() {
	if os.Getenv(controlVariable) == "" {
		return
	}
	l, err := net.FileListener(os.NewFile(3, "control"))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/late", func(http.ResponseWriter, *http.Request) {
		time.Sleep(20 * soakHealth) // a control that is late
	})
	go func() { _ = http.Serve(l, mux) }()
}

// probe is one health check with the response times of controls during it.
type probe struct {
	health  time.Duration
	control time.Duration // slowest response of the same process during the health check
	idle    time.Duration // response time of an idle process
	served  time.Duration // response time of a request through the proxy, right after
	err     error         // why the health check failed
}

// newProbe makes a health check. During it, two loops send requests to the control, so that one is
// always outstanding and any delay of the process also delays one of them.
func newProbe(health, control, idle string) (p probe) {
	var controls sync.WaitGroup
	var slowest [2]time.Duration
	begun, done := make(chan struct{}, len(slowest)), make(chan struct{})
	for i := range slowest {
		controls.Go(func() {
			_, _ = answer(control)
			begun <- struct{}{}
			for more := true; more; {
				d, _ := answer(control)
				slowest[i] = max(slowest[i], d)
				select {
				case <-done:
					more = false
				default:
				}
			}
		})
	}
	for range slowest {
		<-begun
	}
	controls.Go(func() { p.idle, _ = answer(idle) })
	p.health, p.err = answer(health)
	close(done)
	controls.Wait()
	p.control = max(slowest[0], slowest[1])
	return p
}

// answer returns the time of a GET on a new connection.
func answer(url string) (time.Duration, error) {
	start := time.Now()
	resp, err := oneShot.Get(url)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
	}
	return time.Since(start), err
}

var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
	Timeout: 10 * time.Second}

// allowance is soakHealth and what half of the requests to an idle process take: on a machine that
// is busy with other things everything takes longer.
func allowance(probes []probe) time.Duration {
	return soakHealth + median(probes, func(p probe) time.Duration { return p.idle })
}

// lateProbes returns the health checks that failed or took the allowance longer than the slowest
// control.
func lateProbes(probes []probe) []probe {
	allowed := allowance(probes)
	return slices.DeleteFunc(slices.Clone(probes), func(p probe) bool {
		return p.err == nil && p.health <= p.control+allowed
	})
}

func durations(probes []probe, of func(probe) time.Duration) []time.Duration {
	all := make([]time.Duration, len(probes))
	for i, p := range probes {
		all[i] = of(p)
	}
	return all
}

func median(probes []probe, of func(probe) time.Duration) time.Duration {
	all := durations(probes, of)
	slices.Sort(all)
	return all[len(all)/2]
}

type soak struct {
	addr   string
	all    sync.WaitGroup
	served atomic.Int64 // requests from the million addresses
	probes atomic.Int64
}

// again calls one until ctx ends, each time with a new connection.
func (s *soak) again(ctx context.Context, pause time.Duration, one func(net.Conn)) {
	for ctx.Err() == nil {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			quit := context.AfterFunc(ctx, func() { _ = c.Close() })
			one(c)
			quit()
			_ = c.Close()
		}
		wait(ctx, pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *soak) slowBody(ctx context.Context) {
	s.again(ctx, time.Second, func(c net.Conn) {
		_, err := fmt.Fprintf(c,
			"POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\nContent-Length: 1000000\r\n\r\n")
		for err == nil && ctx.Err() == nil {
			_, err = c.Write([]byte("x"))
			wait(ctx, time.Second)
		}
	})
}

func (s *soak) silent(ctx context.Context) {
	s.again(ctx, time.Second, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
}

func (s *soak) upgrade(ctx context.Context) {
	s.again(ctx, 50*time.Millisecond, func(c net.Conn) {
		protocol := []string{"h2c", "websocket", "TLS/1.0"}[rand.N(3)]
		_, _ = fmt.Fprintf(c,
			"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.2\r\nConnection: "+
				"Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		_, _ = http.ReadResponse(bufio.NewReader(c), nil)
	})
}

func (s *soak) hangUp(ctx context.Context) {
	s.again(ctx, 50*time.Millisecond, func(c net.Conn) {
		_, _ = io.WriteString(c, "POST /login HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.3\r\n"+
			"Content-Length: 10\r\n\r\n{}")
	})
}

// slowReader asks for a response without an end, and reads none of it.
func (s *soak) slowReader(ctx context.Context) {
	s.again(ctx, time.Second, func(c net.Conn) {
		askLong(c)
		wait(ctx, 10*time.Second)
	})
}

// askLong asks for a response without an end, from an address that is not over the limit.
func askLong(c net.Conn) {
	_, _ = fmt.Fprintf(c, "GET /long HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.201.%d.%d\r\n\r\n",
		rand.N(256),
		rand.N(256))
}

// reset begins a response and resets the connection.
func (s *soak) reset(ctx context.Context) {
	s.again(ctx, 50*time.Millisecond, func(c net.Conn) {
		askLong(c)
		_, _ = c.Read(make([]byte, 1000))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
}

// through returns the time of a request of an address of its own.
func (s *soak) through(url string) time.Duration {
	n := s.probes.Add(1)
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.200.%d.%d", n>>8&255, n&255))
	start := time.Now()
	resp, err := oneShot.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 10 * time.Second
	}
	_ = resp.Body.Close()
	return time.Since(start)
}

// addresses sends requests from addresses out of a million, sixteen at a time on one connection.
func (s *soak) addresses(ctx context.Context) {
	s.again(ctx, time.Millisecond, func(c net.Conn) {
		r := bufio.NewReader(c)
		for ctx.Err() == nil {
			var b strings.Builder
			for range 16 {
				n := rand.N(1_000_000)
				fmt.Fprintf(&b, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n", n>>16,
					n>>8&255, n&255)
			}
			if _, err := io.WriteString(c, b.String()); err != nil {
				return
			}
			for range 16 {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				s.served.Add(1)
			}
			wait(ctx, 5*time.Millisecond)
		}
	})
}

// caller sends twice its limit of requests. It repeats a request if its connection was closed
// before a response.
func (s *soak) caller(ctx context.Context, length time.Duration, i int) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for n := 0; n < 2*soakLimit && ctx.Err() == nil; {
		r, err := http.NewRequest(http.MethodGet, "http://"+s.addr, nil)
		if err != nil {
			panic(err)
		}
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
		r.Header.Set("X-Caller", strconv.Itoa(i))
		if resp, err := client.Do(r); err == nil {
			_ = resp.Body.Close()
			n++
		}
		wait(ctx, length/(4*soakLimit))
	}
}

// peakMemory returns the peak resident set of a process.
func peakMemory(t *testing.T, pid int) int { return memory(t, pid, "VmHWM:") }

// openFiles returns the number of a process's open files.
func openFiles(t *testing.T, pid int) int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(all)
}

// memory returns a figure of a process, in bytes.
func memory(t *testing.T, pid int, name string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			kib, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no " + name)
	return 0
}
