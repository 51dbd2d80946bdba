package servercmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// written is a buffer that several goroutines use.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// followed is a running proxy that follows a file, under load.
type followed struct {
	*testing.T
	front, admin string
	access       *written
	stop         func() error // it, and returns what Run did
}

// get sends a request with these fields, and returns the response.
func (f *followed) get(path string, fields ...string) *http.Response {
	f.Helper()
	resp, _ := f.send(http.MethodGet, f.front, path, fields...)
	return resp
}

// send sends a request, and returns the response and its body.
func (f *followed) send(method, to, path string, fields ...string) (*http.Response, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, "http://"+to+path, http.NoBody)
	require.NoError(f, err)
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	r.Host = "client.example"
	if to == f.admin {
		r.Host = f.admin
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	require.NoError(f, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(f, err)
	require.NoError(f, resp.Body.Close())
	return resp, string(body)
}

// hold has n requests wait at the upstream until the returned function is called, of another
// address each from 127.0.1.1 on, or all of this one.
func (f *followed) hold(n int, apart bool) (end func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var held sync.WaitGroup
	for i := range n {
		from := &net.Dialer{}
		if apart {
			from.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i/200), byte(1+i%200))}
		}
		client := &http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
		held.Go(func() {
			for ctx.Err() == nil { // a probe or the load may have the place
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.front+"/hold", http.NoBody)
				if resp, err := client.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}
		})
	}
	return func() {
		cancel()
		held.Wait()
	}
}

// until probes up to 200 times, until the answer is want: the load goes on, and may be first.
func until(want string, probe func(*followed) string) func(*followed) string {
	return func(f *followed) (seen string) {
		for range 200 {
			seen = probe(f)
			if seen == want {
				break
			}
		}
		return seen
	}
}

// logged probes whether the access log has a text of a request.
func logged(text string) func(*followed) string {
	return func(f *followed) string {
		before := len(f.access.String())
		f.get("/")
		return fmt.Sprint(strings.Contains(f.access.String()[before:], text))
	}
}

// figures probes whether the figures of the page have a text.
func figures(text string) func(*followed) string {
	return func(f *followed) string {
		_, all := f.send(http.MethodGet, f.admin, "/-/stats")
		return fmt.Sprint(strings.Contains(all, text))
	}
}

// status probes the status of a request, which stands before the others of a test.
func status(path string, fields ...string) func(*followed) string {
	return func(f *followed) string { return fmt.Sprint(f.get(path, fields...).StatusCode) }
}

// second probes the status of the second of two requests.
func second(path string, fields ...string) func(*followed) string {
	return func(f *followed) string {
		f.get(path, fields...)
		return fmt.Sprint(f.get(path, fields...).StatusCode)
	}
}

// afterOne probes after a request, which a limit of one admits.
func afterOne(probe func(*followed) string) func(*followed) string {
	return func(f *followed) string {
		f.get("/")
		return probe(f)
	}
}

// field probes a field of the answer.
func field(name, path string, fields ...string) func(*followed) string {
	return func(f *followed) string { return f.get(path, fields...).Header.Get(name) }
}

// besideOther probes requests beside another connection of the same address.
func besideOther(f *followed) string {
	for range 20 { // the connection before may count for a moment
		held, err := net.Dial("tcp", f.front)
		require.NoError(f, err)
		time.Sleep(10 * time.Millisecond) // no window ends: until it is accepted
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + f.front)
		_ = held.Close()
		if err != nil {
			return "refused"
		}
		_ = resp.Body.Close()
	}
	return "served"
}

// settings are those that a process takes from its file, with a probe of each: before is the file,
// after the line that a reload adds or replaces.
var settings = []struct {
	name, before, after string
	was, is             string
	probe               func(*followed) string
}{
	{"upstream", "upstream: ONE", "upstream: TWO", "one", "two", field("Upstream", "/")},
	{"preserve-host", "", "preserve-host: true", "127.0.0.1", "client.example", func(f *followed) string {
		host, _, _ := strings.Cut(f.get("/").Header.Get("Seen-Host"), ":")
		return host
	}},
	{"upstream-timeout", "", "upstream-timeout: 50ms", "200", "504", status("/slow")},
	{"normalize-paths", "", "normalize-paths: true", "200", "400", status("/a%2Fb")},
	{"address-path", "", "address-path: /addr", "one", "", field("Upstream", "/addr")},
	{"trust", "", "trust: 127.0.0.1", "127.0.0.1", "192.0.2.9, 127.0.0.1",
		field("Seen-For", "/", "X-Forwarded-For", "192.0.2.9")},
	{"forwarded", "trust: 127.0.0.1", "forwarded: true", "", "for=192.0.2.9",
		field("Seen-Forwarded", "/", "Forwarded", "for=192.0.2.9")},
	{"strip", "", "strip: X-Mine", "a", "", field("Seen-Mine", "/", "X-Mine", "a")},
	{"pass", "", "pass: X-Real-Ip", "", "a", field("Seen-Real", "/", "X-Real-Ip", "a")},
	{"allow", "deny: 127.0.0.1", "allow: 127.0.0.1", "403", "200", status("/")},
	{"deny", "", "deny: 127.0.0.1", "200", "403", status("/")},
	{"by", "limit: 1/1d", "by: header:X-Key", "429", "400", second("/")},
	{"limit", "limit: a=1/1d", "limit: a=9/1d", "429", "200", second("/")},
	{"route", "", "route: /r limit=1/1d", "200", "429", second("/r")},
	{"count-if", "limit: 3/1d", "count-if: 5xx", "200", "200", second("/")}, // or the fourth is denied
	{"shadow", "deny: 127.0.0.1", "shadow: true", "403", "200", status("/")},
	{"headers", "", "headers: legacy", "", "1000000", field("X-RateLimit-Limit", "/")},
	{"status", "limit: 1/1d", "status: 418", "429", "418", second("/")},
	{"max-conns-per-ip", "max-conns-per-ip: 9", "max-conns-per-ip: 1", "served", "refused", besideOther},
	{"max-in-flight", "max-in-flight: 90", "max-in-flight: 1", "200", "503", func(f *followed) string {
		defer f.hold(1, false)()
		return until("503", status("/"))(f)
	}},
	{"max-in-flight-per-client", "", "max-in-flight-per-client: 1", "200", "429", func(f *followed) string {
		defer f.hold(1, false)()
		return until("429", status("/"))(f)
	}},
	{"class", "overload: 1us\nclass: /x=critical", "class: /x=sheddable", "200", "503",
		func(f *followed) string {
			// Seven of ten places are for what is sheddable. No request is quick enough for more.
			defer f.hold(max(100, 16*runtime.GOMAXPROCS(0))*8/10, true)()
			return until("503", status("/x"))(f)
		}},
	{"overload", "", "overload: 250ms", "false", "true", figures(`"learnt":true`)},
	{"try", "", "try: 1/1d", "false", "true", figures(`"try":`)},
	{"admin-host", "", "admin-host: page.example", "421", "200", func(f *followed) string {
		resp, _ := f.send(http.MethodGet, f.admin, "/-/stats", "Host", "page.example")
		return fmt.Sprint(resp.StatusCode)
	}},
	// a token is back after a day, and a sliding window empty after up to two
	{"strategy", "limit: 1/1d", "strategy: token", "false", "true", func(f *followed) string {
		return fmt.Sprint(strings.HasSuffix(f.get("/").Header.Get("RateLimit"), ";r=0;t=86400"))
	}},
	{"burst", "limit: 1/1d:token", "burst: 9", "429", "200", second("/")},
	{"queue", "limit: 50/1s:leaky", "queue: 1", "200", "429", func(f *followed) string {
		seen := make(chan string, 9)
		for range cap(seen) { // at once
			go func() { seen <- status("/")(f) }()
		}
		codes := make([]string, cap(seen))
		for i := range codes {
			codes[i] = <-seen
		}
		return slices.Max(codes)
	}},
	{"fail", "", "fail: open", "false", "true", figures(`"fail_open":true`)},
	{"on-full", "limit: 9/1d\nby: header:X-Key\nmax-buckets: 1", "on-full: admit", "503", "200",
		until("503", func(f *followed) string { return status("/", "X-Key", rand.Text())(f) })},
	{"max-keys", "limit: 1/1d\nby: header:X-Key", "max-keys: 1", "200", "429", func(f *followed) (seen string) {
		for range 3 { // the first has its own budget, and the others one together
			seen = status("/", "X-Key", rand.Text())(f)
		}
		return seen
	}},
	{"ipv6-prefix", "limit: 1/1d\ntrust: 127.0.0.1", "ipv6-prefix: 48", "200", "429", func(f *followed) string {
		status("/", "X-Forwarded-For", "2001:db8:1:1::1")(f)
		return status("/", "X-Forwarded-For", "2001:db8:1:2::1")(f)
	}},
	{"penalty-box", "limit: 1/1d", "penalty-box: 1/1h=1h", "false", "true", func(f *followed) string {
		f.get("/")
		f.get("/")
		return logged("outcome=listed")(f)
	}},
	{"mochiweb", "limit: 1/1d", "mochiweb: true", "429", "413", second("/")},
	{"denied-page", "limit: 1/1d", "denied-page: PAGE", "false", "true", func(f *followed) string {
		f.get("/")
		_, text := f.send(http.MethodGet, f.front, "/")
		return fmt.Sprint(text == "a page")
	}},
	{"jitter", "limit: 1/1d:fixed", "jitter: 1000h", "false", "true", until("true", func(f *followed) string {
		f.get("/")
		after, _ := strconv.Atoi(f.get("/").Header.Get("Retry-After"))
		return fmt.Sprint(after > 86400)
	})},
	{"cors-origin", "limit: 1/1d", "cors-origin: https://a.example", "", "https://a.example",
		afterOne(field("Access-Control-Allow-Origin", "/", "Origin", "https://a.example"))},
	{"cors-credentials", "limit: 1/1d\ncors-origin: https://a.example", "cors-credentials: true", "", "true",
		afterOne(field("Access-Control-Allow-Credentials", "/", "Origin", "https://a.example"))},
	{"count-preflights", "limit: 1/1d", "count-preflights: true", "200", "429", func(f *followed) string {
		var resp *http.Response
		for range 2 {
			resp, _ = f.send(http.MethodOptions, f.front, "/", "Origin", "https://a.example",
				"Access-Control-Request-Method", "PUT")
		}
		return fmt.Sprint(resp.StatusCode)
	}},
	{"send-timeout", "", "send-timeout: 50ms", "whole", "cut off", func(f *followed) string {
		conn, err := net.Dial("tcp", f.front)
		require.NoError(f, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(f, err)
		time.Sleep(300 * time.Millisecond) // the client does not read meanwhile
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(f, err)
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			return "cut off"
		}
		return "whole"
	}},
	{"body-rate", "body-rate: 0", "body-rate: 1000", "200", "408", func(f *followed) string {
		conn, err := net.Dial("tcp", f.front)
		require.NoError(f, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
		require.NoError(f, err)
		time.Sleep(200 * time.Millisecond) // no window ends: the client is slow
		_, err = io.WriteString(conn, "b")
		require.NoError(f, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(f, err)
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode)
	}},
	{"max-conns", "max-conns: 99", "max-conns: 1", "served", "refused", besideOther},
	{"max-body", "max-body: 9", "max-body: 1", "200", "413", func(f *followed) string {
		resp, err := http.Post("http://"+f.front, "text/plain", strings.NewReader("ab"))
		require.NoError(f, err)
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode)
	}},
	{"access-log", "", "access-log: json", "false", "true", logged(`"msg":"request"`)},
	{"log-keys", "", "log-keys: true", "false", "true", logged("key=127.0.0.1")},
}

// ending are those that show at the end: each line has a proxy end soon with a request in flight,
// whose client does not leave.
var ending = []struct{ name, before, after string }{
	{"drain", "drain: 1h", "drain: 10ms"},
	{"drain-delay", "drain-delay: 1h\ndrain: 10ms", "drain-delay: 0s"},
}

func TestADrainIsAsTheFileSays(t *testing.T) {
	for _, s := range ending {
		t.Run(s.name, func(t *testing.T) {
			arrived := make(chan struct{}, 1)
			upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					arrived <- struct{}{}
					<-r.Context().Done()
				}
			}))
			defer upstream.Close()
			text := "limit: 1000000/1d\nupstream: " + upstream.URL + "\n"
			f, change := follow(t, text+s.before+"\n")
			go func() {
				if resp, err := http.Get("http://" + f.front + "/hold"); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-arrived
			text += strings.ReplaceAll(s.before, s.name+": 1h", "") + "\n"
			change(text + s.after + "\n")
			assert.ErrorContains(t, f.stop(), "1 requests were still in flight after 10ms")
		})
	}
}

// TestEachSettingCanBeChanged has a row for each setting of a file: it changes by SIGHUP, under
// load, or is one of those that take another process.
func TestEachSettingCanBeChanged(t *testing.T) {
	answer := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Upstream", name)
			h.Set("Seen-For", r.Header.Get("X-Forwarded-For"))
			h.Set("Seen-Forwarded", r.Header.Get("Forwarded"))
			h.Set("Seen-Mine", r.Header.Get("X-Mine"))
			h.Set("Seen-Real", r.Header.Get("X-Real-Ip"))
			h.Set("Seen-Host", r.Host)
			_, _ = io.Copy(io.Discard, r.Body)
			switch r.URL.Path {
			case "/slow":
				time.Sleep(200 * time.Millisecond) // more than the timeout of the test
			case "/large":
				for range 512 {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						return
					}
				}
			case "/hold":
				<-r.Context().Done()
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	page := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(page, []byte("a page"), 0o600))
	words := strings.NewReplacer("ONE", answer("one").URL, "TWO", answer("two").URL, "PAGE", page)
	rows := map[string]string{}
	for _, name := range fixed {
		rows[name] = "SIGUSR2 |"
	}
	for _, s := range ending {
		rows[s.name] = "SIGHUP | ✓"
	}
	for _, s := range settings {
		rows[s.name] = "SIGHUP | ✓"
		t.Run(s.name, func(t *testing.T) {
			text := words.Replace("jitter: 0s\n" + s.before + "\n")
			for _, line := range []string{"limit: 1000000/1d", "upstream: ONE"} {
				if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, "\n"+name+":") {
					text += words.Replace(line) + "\n"
				}
			}
			f, change := follow(t, text)
			assert.Equal(t, s.was, s.probe(f), "before")
			var kept []string
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, s.name+":") {
					kept = append(kept, line)
				}
			}
			change(strings.Join(kept, "") + words.Replace(s.after) + "\n")
			assert.Equal(t, s.is, s.probe(f), "after")
		})
	}
	cells := maps.Clone(rows)
	names := slices.Sorted(maps.Keys(rows))
	new(proxyFlags).command().Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(notInFiles, flag.Name) {
			assert.NotEmpty(t, rows[flag.Name], "--%s", flag.Name)
		}
		delete(rows, flag.Name)
	})
	assert.Empty(t, rows, "no flags")
	var table strings.Builder
	table.WriteString("# How each setting of weir.yaml is changed while the proxy serves\n\n" +
		"TestEachSettingCanBeChanged writes this with WEIR_UPDATE=1. Those with a tick " +
		"are seen to change under load.\n\n" +
		"| setting | by | seen |\n|---|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&table, "| `%s` | %s |\n", name, cells[name])
	}
	if os.Getenv("WEIR_UPDATE") != "" {
		require.NoError(t, os.WriteFile("SETTINGS.md", []byte(table.String()), 0o600))
	}
	text, err := os.ReadFile("SETTINGS.md")
	require.NoError(t, err)
	assert.Equal(t, string(text), table.String())
}

// follow runs a proxy with a file, under load of another address, until the test ends. change has
// it follow another text.
func follow(t *testing.T, text string) (f *followed, change func(text string)) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	of := new(proxyFlags)
	cmd := of.command()
	require.NoError(t, cmd.ParseFlags([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}))
	var given []*pflag.Flag
	cmd.Flags().Visit(func(flag *pflag.Flag) { given = append(given, flag) })
	read, err := readConfig(cmd, file)
	require.NoError(t, err)
	f = &followed{T: t, access: new(written)}
	logged := new(written)
	build := func(of *proxyFlags, given func(string) bool) (proxy.Config, error) {
		cfg, err := of.config(given, f.access, logged)
		cfg.Bodies.Grace = 50 * time.Millisecond // in place of ten seconds
		return cfg, err
	}
	cfg, err := build(of, cmd.Flags().Changed)
	require.NoError(t, read.located(err))
	log := newFormats(cfg.Log.Handler())
	cfg.Log = slog.New(log)
	p, err := proxy.New(cfg)
	require.NoError(t, err)
	r := &reloader{proxy: p, file: file, given: given, flags: cmd.Flags(), cfg: cfg, log: log, make: build}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = p.Run(ctx) })
	f.stop = func() error {
		stop()
		running.Wait()
		return ended
	}
	t.Cleanup(func() { _ = f.stop() })
	require.Eventually(t, func() bool {
		_, after, ok := strings.Cut(logged.String(), "listen=http://")
		f.front, after, _ = strings.Cut(after, " ")
		_, after, _ = strings.Cut(after, "admin=http://")
		f.admin, _, _ = strings.Cut(after, "/-/")
		return ok && f.admin != ""
	}, 10*time.Second, time.Millisecond)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := &http.Client{Transport: &http.Transport{DialContext: from.DialContext}}
	running.Go(func() {
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			if resp, err := client.Get("http://" + f.front + "/load"); err == nil {
				_ = resp.Body.Close()
			}
		}
	})
	return f, func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text+"# end\n"), 0o600))
		require.NoError(t, r.reload(), text)
	}
}
