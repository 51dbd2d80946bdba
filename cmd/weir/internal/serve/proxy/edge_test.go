package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/httplimit"
)

func code(code int, _ string) int { return code }

// TestADenyFileThatVanishesEmptiesNoList reloads a file that is missing.
func TestADenyFileThatVanishesEmptiesNoList(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	s := serve(t, cfg)
	assert.FileExists(t, cfg.DenyFile)
	require.NoError(t, s.Reload())
	assert.Equal(t, 204, code(deny(t, s, "POST", `{"what":"192.0.2.1"}`)))
	require.NoError(t, os.Remove(cfg.DenyFile))
	assert.ErrorIs(t, s.Reload(), os.ErrNotExist)
	assert.Len(t, s.denied.Added(), 1)
	assert.Equal(t, 204, code(deny(t, s, "POST", `{"what":"192.0.2.2"}`)), "it is written again")
	require.NoError(t, s.Reload())
	assert.Len(t, s.denied.Added(), 2)
}

// TestACutDenyFileChangesNothing cuts a file inside of a comment, which is a valid file without
// entries. The log has both numbers. At its end the file says that it is whole.
func TestACutDenyFileChangesNothing(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	write := func(text string) { require.NoError(t, os.WriteFile(cfg.DenyFile, []byte(text), 0o600)) }
	comment, entries := "# of the abuse desk\n", ""
	for i := range 23 {
		entries += fmt.Sprintf("192.0.2.%d\n", i)
	}
	write(comment + entries)
	log := textLog(&cfg.Log)
	s := serve(t, cfg)
	for _, text := range []string{"# of the abu", comment, comment + "192.0.2.0\n192.0.2.1\n", "",
		comment + entries[:len(entries)-2]} {
		write(text)
		for range 2 { // a SIGHUP may come for a certificate
			log.Reset()
			assert.ErrorIs(t, s.Reload(), cli.ErrCut, text)
			assert.Len(t, s.denied.Added(), 23, text)
			assert.Contains(t, log.String(), "level=WARN")
			assert.Contains(t, log.String(), fmt.Sprintf("entries=%d entries_before=23",
				strings.Count(text, "192.")))
		}
	}
	log.Reset()
	write(comment + "192.0.2.0\n# end\n")
	require.NoError(t, s.Reload())
	assert.Len(t, s.denied.Added(), 1)
	assert.Contains(t, log.String(), `level=WARN msg="deny file read" entries=1 entries_before=23`)
}

// TestNoCutOfItsOwnDenyFileChangesTheList cuts a file that the proxy has written at each byte.
func TestNoCutOfItsOwnDenyFileChangesTheList(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	s := serve(t, cfg)
	for _, what := range []string{"192.0.2.0/24", "198.51.100.77", "a key", "2001:db8::/48"} {
		require.Equal(t, 204, code(deny(t, s, "POST", fmt.Sprintf(`{"what":%q,"for":"7d"}`, what))))
	}
	list := s.denied.Added()
	whole, err := os.ReadFile(cfg.DenyFile)
	require.NoError(t, err)
	for i := range whole {
		require.NoError(t, os.WriteFile(cfg.DenyFile, whole[:i], 0o600))
		if err := s.Reload(); i < len(whole)-1 {
			assert.Error(t, err, "%q", whole[:i])
		}
		require.Equal(t, len(list), len(s.denied.Added()), "%q", whole[:i])
	}
	require.NoError(t, os.WriteFile(cfg.DenyFile, whole, 0o600))
	require.NoError(t, s.Reload())
	assert.Equal(t, names(list), names(s.denied.Added()))
}

// TestACutPageAndACutChainAreNoticed empties the page of a denial, which stays as it was, and cuts
// a chain of certificates, which is valid, in its second one.
func TestACutPageAndACutChainAreNoticed(t *testing.T) {
	page := filepath.Join(t.TempDir(), "denied.html")
	require.NoError(t, os.WriteFile(page, []byte("<p>no"), 0o600))
	cfg := config(t, "0/1d")
	log := textLog(&cfg.Log)
	var err error
	cfg.DeniedPage, err = NewDeniedPage(page)
	require.NoError(t, err)
	cfg.TLS = certificate(t, "leaf")
	leaf, err := os.ReadFile(cfg.TLS.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.TLS.Cert, append(leaf, leaf...), 0o600))
	s := serve(t, cfg)
	require.NoError(t, os.WriteFile(page, nil, 0o600))
	require.NoError(t, os.WriteFile(cfg.TLS.Cert, append(leaf, leaf[:len(leaf)/2]...), 0o600))
	assert.ErrorContains(t, s.Reload(), "denied.html is empty")
	assert.Equal(t, "<p>no", string(*cfg.DeniedPage.text.Load()))
	assert.Contains(t, log.String(), "certificates=1 certificates_before=2")
}

// names returns whom the entries are for.
func names(entries []httplimit.DenyEntry) (all []string) {
	for _, e := range entries {
		all = append(all, new(By).describe(e))
	}
	return all
}

// TestAChangeKeepsAnEditedDenyFile changes the list while the file has lines that were not read.
func TestAChangeKeepsAnEditedDenyFile(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	s := serve(t, cfg)
	for _, text := range []string{"192.0.2.7\nmoon\n", "192.0.2.7\n"} {
		require.NoError(t, os.WriteFile(cfg.DenyFile, []byte(text), 0o600))
		if strings.Contains(text, "moon") {
			assert.ErrorContains(t, s.Reload(), "deny:2:")
		}
		assert.Equal(t, 500, code(deny(t, s, "POST", `{"what":"192.0.2.8"}`)))
		got, err := os.ReadFile(cfg.DenyFile)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	require.NoError(t, s.Reload())
	assert.Equal(t, 204, code(deny(t, s, "POST", `{"what":"192.0.2.8"}`)))
	got, err := os.ReadFile(cfg.DenyFile)
	require.NoError(t, err)
	assert.Contains(t, string(got), "192.0.2.7/32\n192.0.2.8/32\n")
}

// TestADenyFileWithTooManyEntriesChangesNothing reloads a file of which only a part fits in the
// list.
func TestADenyFileWithTooManyEntriesChangesNothing(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile, cfg.MaxDeny = filepath.Join(t.TempDir(), "deny"), 2
	s := serve(t, cfg)
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		assert.Equal(t, 204, code(deny(t, s, "POST", fmt.Sprintf(`{"what":%q}`, address))))
	}
	before := s.denied.Added()
	const text = "192.0.2.1\n192.0.2.3\n192.0.2.4\n192.0.2.5\n"
	require.NoError(t, os.WriteFile(cfg.DenyFile, []byte(text), 0o600))
	err := s.Reload()
	assert.ErrorIs(t, err, httplimit.ErrDenyListFull)
	assert.ErrorContains(t, err, cfg.DenyFile)
	assert.Equal(t, before, s.denied.Added())
	assert.Equal(t, 500, code(deny(t, s, "DELETE", `{"what":"192.0.2.2"}`)))
	got, err := os.ReadFile(cfg.DenyFile)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestAMissingDirectoryIsNoticedAtTheStart(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "missing", "deny")
	_, err := New(cfg)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestOptionsOfTheServerAreLimited sends OPTIONS *, which net/http would answer by itself.
func TestOptionsOfTheServerAreLimited(t *testing.T) {
	cfg := config(t, "1/1d")
	var got atomic.Value
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer upstream.Close()
	go func() {
		conn, err := upstream.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		got.Store(line)
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}()
	cfg.Upstream = upstreamOf(t, nil)
	cfg.Upstream.Host = upstream.Addr().String()
	p := run(t, cfg)
	for _, want := range []int{204, 429} {
		conn := dial(t, p.front, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
		resp := response(t, conn)
		assert.Equal(t, want, resp.StatusCode)
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, "OPTIONS * HTTP/1.1\r\n", got.Load())
	p.end(t)
}

// TestTheFirstLineSaysTheBurst has the most that each limit admits at once, and warnings of
// settings that no limit survives.
func TestTheFirstLineSaysTheBurst(t *testing.T) {
	cfg := withRoutes(t, config(t, "20/4s", "30/1d:fixed", "0/1m"), "/login limit=5/1m:sliding")
	log := textLog(&cfg.Log)
	p, err := New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	(&serving{p: p, front: &server{conns: newConns(l, connBounds{})}, back: &server{}}).announce()
	for _, want := range []string{
		`limit="20/4s sliding" at_once=20 `, `limit="30/1d fixed" at_once=60 `,
		`route=/login limit="5/1m sliding" at_once=5 `,
		`level=WARN msg="a limit admits nothing: every request is denied" limit="0/1m sliding"`,
	} {
		assert.Contains(t, log.String(), want)
	}
	assert.NoError(t, p.close())
}

// TestOneAddressHasAsManyRequestsAsConnections opens more HTTP/2 streams than one address may have
// connections.
func TestOneAddressHasAsManyRequestsAsConnections(t *testing.T) {
	const bound = 5
	cfg := config(t, "1000/1d")
	cfg.TLS, cfg.MaxConnsPerAddr = certificate(t, "127.0.0.1"), bound
	release := make(chan struct{})
	var most, now, refused atomic.Int64
	var once sync.Once
	goOn := func() { // once all are where they belong
		if now.Load() == bound && refused.Load() == 3*bound {
			once.Do(func() { close(release) })
		}
	}
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			return
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		goOn()
		<-release
		now.Add(-1)
	})
	p := run(t, cfg)
	var requests sync.WaitGroup
	var admitted atomic.Int64
	for range 2 {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
		resp, err := client.Get(p.front + "/first") // so that the others share its connection
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		for range 2 * bound {
			requests.Go(func() {
				resp, err := client.Get(p.front)
				if assert.NoError(t, err) {
					_ = resp.Body.Close()
					switch resp.StatusCode {
					case 200:
						admitted.Add(1)
					case 503:
						refused.Add(1)
						goOn()
					}
				}
			})
		}
	}
	requests.Wait()
	assert.EqualValues(t, bound, admitted.Load())
	assert.EqualValues(t, bound, most.Load())
	p.end(t)
	// a client may have its answer before the handler has returned
	assert.Empty(t, p.conns.Load().serving)
}

// The path of the address shows whom a request counts for, is limited as all paths are, and hides
// no other path of the upstream.
func TestTheAddressPathShowsTheKey(t *testing.T) {
	cfg := config(t, "2/1d")
	cfg.AddressPath, cfg.Trust = "/which-address", loopback
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "upstream")
	})
	p := run(t, cfg)
	get := func(path string) (*http.Response, string) {
		return send(t, "GET", "http://"+p.front+path, nil, "X-Forwarded-For", "203.0.113.7")
	}
	resp, body := get("/which-address")
	assert.Equal(t, 200, resp.StatusCode)
	assert.Contains(t, body, "key: 203.0.113.7\n")
	_, body = get("/which-address/")
	assert.Equal(t, "upstream", body)
	resp, _ = get("/which-address")
	assert.Equal(t, 429, resp.StatusCode)

	cfg.AddressPath = "which-address"
	_, err := New(cfg)
	assert.ErrorContains(t, err, "slash")
}

// TestWideRangesAreSaid has ranges of each family, at the start and in later settings, from a file
// too. No warning says more than its range.
func TestWideRangesAreSaid(t *testing.T) {
	const allow, trust, deny = "--allow has more than a quarter of all addresses: their clients are not limited",
		"--trust has more than a quarter of all addresses: their clients choose their own",
		"the deny list has more than a quarter of all addresses: their clients are refused"
	for _, row := range []struct{ flag, text, want string }{
		{"allow", "::/0", allow}, {"allow", "0.0.0.0/1", allow}, {"allow", "10.0.0.0/8", ""},
		{"trust", "0.0.0.0/0", trust}, {"trust", "2001:db8::/32", ""},
		{"deny", "0.0.0.0/0", deny}, {"deny", "::/1", deny}, {"deny", "192.0.0.0/2", ""}, {"deny", "key:0.0.0.0/0", ""},
		{"file", "0.0.0.0/0", deny},
	} {
		cfg := config(t, "1/1d")
		log := textLog(&cfg.Log)
		before := cfg
		switch row.flag {
		case "allow":
			cfg.Allow = []netip.Prefix{netip.MustParsePrefix(row.text)}
		case "trust":
			cfg.Trust = []netip.Prefix{netip.MustParsePrefix(row.text)}
		case "deny":
			cfg.Deny = []httplimit.DenyEntry{entry(t, row.text)}
		case "file":
			cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
			require.NoError(t, os.WriteFile(cfg.DenyFile, []byte(row.text+"\n"), 0o600))
		}
		check := func(p *Proxy) {
			log.Reset()
			p.Warn()
			if row.want == "" {
				assert.Empty(t, log.String(), row.text)
			} else {
				assert.Contains(t, log.String(), fmt.Sprintf("level=WARN msg=%q range=%s\n", row.want, row.text))
				assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			}
		}
		check(serve(t, cfg).Proxy)
		if row.flag == "allow" {
			later := serve(t, before)
			require.NoError(t, later.Reconfigure(cfg))
			check(later.Proxy)
		}
	}
}
