package servercmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/proxy"
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
	front  string
	access *written
}

// get sends a request with these fields, and returns the response.
func (f *followed) get(path string, fields ...string) *http.Response {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "http://"+f.front+path, http.NoBody)
	require.NoError(f, err)
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	r.Host = "client.example"
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	require.NoError(f, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(f, err)
	require.NoError(f, resp.Body.Close())
	return resp
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
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.front+"/hold", http.NoBody)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
		seen := ""
		for range 200 { // the load goes on, and may be first
			if seen = status("/")(f); seen == "503" {
				break
			}
		}
		return seen
	}},
	{"max-body", "max-body: 9", "max-body: 1", "200", "413", func(f *followed) string {
		resp, err := http.Post("http://"+f.front, "text/plain", strings.NewReader("ab"))
		require.NoError(f, err)
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode)
	}},
	{"access-log", "", "access-log: json", "text", "json", func(f *followed) string {
		before := len(f.access.String())
		f.get("/")
		if strings.Contains(f.access.String()[before:], `"msg":"request"`) {
			return "json"
		}
		return "text"
	}},
	{"log-keys", "", "log-keys: true", "false", "true", func(f *followed) string {
		before := len(f.access.String())
		f.get("/")
		return fmt.Sprint(strings.Contains(f.access.String()[before:], "key=127.0.0.1"))
	}},
}

// taken are settings that a reload takes, too, whose effect shows in no answer, or in that of other
// tests.
var taken = []string{"strategy", "fail", "max-conns", "burst", "queue", "try", "on-full", "max-keys",
	"ipv6-prefix", "penalty-box",
	"mochiweb", "denied-page", "jitter", "cors-origin", "cors-credentials", "count-preflights", "overload",
	"class", "max-in-flight-per-client", "body-rate", "send-timeout", "admin-host", "drain-delay", "drain"}

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
			switch r.URL.Path {
			case "/slow":
				time.Sleep(200 * time.Millisecond) // more than the timeout of the test
			case "/hold":
				<-r.Context().Done()
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	urls := strings.NewReplacer("ONE", answer("one").URL, "TWO", answer("two").URL)
	rows := map[string]string{}
	for _, name := range fixed {
		rows[name] = "SIGUSR2 |"
	}
	for _, name := range taken {
		rows[name] = "SIGHUP |"
	}
	for _, s := range settings {
		rows[s.name] = "SIGHUP | ✓"
		t.Run(s.name, func(t *testing.T) {
			text := urls.Replace("jitter: 0s\n" + s.before + "\n")
			for _, line := range []string{"limit: 1000000/1d", "upstream: ONE"} {
				if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, "\n"+name+":") {
					text += urls.Replace(line) + "\n"
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
			change(strings.Join(kept, "") + urls.Replace(s.after) + "\n")
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
	require.NoError(t, cmd.ParseFlags([]string{"--listen", "127.0.0.1:0", "--admin", "off"}))
	var given []*pflag.Flag
	cmd.Flags().Visit(func(flag *pflag.Flag) { given = append(given, flag) })
	read, err := readConfig(cmd, file)
	require.NoError(t, err)
	f = &followed{T: t, access: new(written)}
	logged := new(written)
	build := func(of *proxyFlags, given func(string) bool) (proxy.Config, error) {
		return of.config(given, f.access, logged)
	}
	cfg, err := build(of, cmd.Flags().Changed)
	require.NoError(t, read.located(err))
	log := newFormats(cfg.Log.Handler())
	cfg.Log = slog.New(log)
	p, err := proxy.New(cfg)
	require.NoError(t, err)
	r := &reloader{Proxy: p, file: file, given: given, flags: cmd.Flags(), cfg: cfg, log: log, make: build}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	require.Eventually(t, func() bool {
		_, after, ok := strings.Cut(logged.String(), "listen=http://")
		f.front, _, _ = strings.Cut(after, " ")
		return ok
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
