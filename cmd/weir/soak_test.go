package main

import (
	"bufio"
	"cmp"
	"context"
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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/slow"
)

const (
	soakMemory  = 512 << 20 // bytes of the proxy's resident set, at most
	soakHealth  = timeFactor * 50 * time.Millisecond
	soakLimit   = 20 // requests of a caller a day
	soakCallers = 30
)

// TestSoak runs the proxy in a process of its own against what attackers and clients do all at
// once: slow bodies, silent connections, upgrades, hang-ups, a million addresses, and callers who
// ask for twice their limit. The health check always answers, the memory stays below a bound, and
// of each caller exactly the limit reaches the upstream.
func TestSoak(t *testing.T) {
	slow.Test(t)
	var reached sync.Map // of the callers' requests, by caller
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if caller := r.Header.Get("X-Caller"); caller != "" {
			n, _ := reached.LoadOrStore(caller, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer upstream.Close()
	p := proxyProcess(t, "--limit", fmt.Sprintf("%d/1d", soakLimit), "--upstream", upstream.URL, "--access-log", "off",
		"--trust", "127.0.0.0/8", "--max-conns", "1000", "--max-in-flight-per-client", "20", "--body-rate", "100", "--drain", "5s")
	idle := proxyProcess(t, "--limit", "1/1d", "--access-log", "off")
	s := &soak{addr: strings.TrimPrefix(p.front, "http://"), health: p.back + "/-/healthz", idle: idle.back + "/-/healthz"}
	length := time.Duration(slow.N(30, 30, 300)) * time.Second
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	for n, attack := range map[int]func(context.Context){250: s.slowBody, 700: s.silent, 10: s.upgrade, 11: s.hangUp, 4: s.addresses} {
		for range n {
			s.all.Go(func() { attack(ctx) })
		}
	}
	s.all.Go(func() { s.probe(ctx) })
	for i := range soakCallers {
		s.all.Go(func() { s.caller(ctx, length, i) })
	}
	s.all.Wait()

	for i := range soakCallers {
		n, ok := reached.Load(strconv.Itoa(i))
		require.True(t, ok)
		assert.EqualValues(t, soakLimit, n.(*atomic.Int64).Load(), "caller %d", i)
	}
	require.NotEmpty(t, s.delays)
	late := s.late()
	t.Logf("health: %d answers, median %v, slowest %v; of an idle proxy %v and %v; %d late; %d addresses; peak memory %d MiB",
		len(s.delays), median(s.delays, attacked), slowest(s.delays, attacked), median(s.delays, control), slowest(s.delays, control),
		late, s.served.Load(), peakMemory(t, p.Process.Pid)>>20)
	assert.Zero(t, s.failed.Load(), "health checks without an answer")
	assert.LessOrEqual(t, late, len(s.delays)/100, "answers %v later than those of an idle proxy", soakHealth)
	assert.Less(t, peakMemory(t, p.Process.Pid), memoryFactor*soakMemory)
	for _, proxy := range []*process{p, idle} {
		require.NoError(t, proxy.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, proxy.Wait())
	}
}

type soak struct {
	addr, health, idle string
	all                sync.WaitGroup
	served             atomic.Int64 // requests of the million addresses
	failed             atomic.Int64 // health checks
	delays             []delays
}

// delays are how long the proxy that is attacked, and one that nobody else asks, took to answer a
// health check at one time. The machine may hold up either, and attackers and clients share it.
type delays [2]time.Duration

const attacked, control = 0, 1

// late returns how many answers took soakHealth longer than the slowest of the idle proxy in the
// checks around them. Where twenty processes share two cores, one or two of five hundred do, as the
// busier of two processes waits longer for a core.
func (s *soak) late() (n int) {
	for i, d := range s.delays {
		near := s.delays[max(i-2, 0):min(i+3, len(s.delays))]
		if d[attacked] > slowest(near, control)+soakHealth {
			n++
		}
	}
	return n
}

func slowest(all []delays, of int) time.Duration {
	return slices.MaxFunc(all, func(a, b delays) int { return cmp.Compare(a[of], b[of]) })[of]
}

func median(all []delays, of int) time.Duration {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b delays) int { return cmp.Compare(a[of], b[of]) })
	return sorted[len(sorted)/2][of]
}

// again calls one until ctx ends, with a connection each time.
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
		_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\nContent-Length: 1000000\r\n\r\n")
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
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.2\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		_, _ = http.ReadResponse(bufio.NewReader(c), nil)
	})
}

func (s *soak) hangUp(ctx context.Context) {
	s.again(ctx, 50*time.Millisecond, func(c net.Conn) {
		_, _ = io.WriteString(c, "POST /login HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.3\r\nContent-Length: 10\r\n\r\n{}")
	})
}

// addresses sends requests of addresses out of a million, sixteen at a time on one connection.
func (s *soak) addresses(ctx context.Context) {
	s.again(ctx, time.Millisecond, func(c net.Conn) {
		r := bufio.NewReader(c)
		for ctx.Err() == nil {
			var b strings.Builder
			for range 16 {
				n := rand.N(1_000_000)
				fmt.Fprintf(&b, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n", n>>16, n>>8&255, n&255)
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

// caller asks for twice its limit, and again if a connection was closed before an answer.
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

// probe asks both proxies for their health, on new connections each time.
func (s *soak) probe(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for ctx.Err() == nil {
		var d delays
		var both sync.WaitGroup
		for i, url := range []string{attacked: s.health, control: s.idle} {
			both.Go(func() { d[i] = s.ask(client, url) })
		}
		both.Wait()
		s.delays = append(s.delays, d)
		wait(ctx, 50*time.Millisecond)
	}
}

// ask returns how long an answer took.
func (s *soak) ask(client *http.Client, url string) time.Duration {
	start := time.Now()
	resp, err := client.Get(url)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.failed.Add(1)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	return time.Since(start)
}

// peakMemory returns the largest resident set that a process has had.
func peakMemory(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
