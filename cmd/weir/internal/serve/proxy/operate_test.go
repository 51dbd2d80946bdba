package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// The tests in this file do what an operator does.

// certificate returns files with a self-signed certificate for name.
func certificate(t testing.TB, name string) TLS {
	t.Helper()
	dir := t.TempDir()
	files := TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	writeCertificate(t, files, name)
	return files
}

// writeCertificate writes a self-signed certificate for name.
func writeCertificate(t testing.TB, files TLS, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files.Cert,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(files.Key,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

func TestTLSWithARenewedCertificate(t *testing.T) {
	files := certificate(t, "first")
	cfg := config(t, "1000/1d")
	cfg.TLS = files
	proto := ""
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		proto = r.Header.Get("X-Forwarded-Proto")
	})
	p := run(t, cfg)
	addr := strings.TrimPrefix(p.front, "https://")
	ask := func() (name, protocol string) {
		client := &http.Client{Transport: &http.Transport{
			//nolint:gosec // self-signed
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
			DisableKeepAlives: true,
		}}
		resp, err := client.Get("https://" + addr)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
		return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.Proto
	}
	name, protocol := ask()
	assert.Equal(t, "first", name)
	assert.Equal(t, "HTTP/2.0", protocol)
	assert.Equal(t, "https", proto)

	writeCertificate(t, files, "second")
	require.NoError(t, p.Reload())
	name, _ = ask()
	assert.Equal(t, "second", name)

	// A change is noticed without a signal. An invalid file leaves the old certificate in use.
	writeCertificate(t, files, "third")
	name, _ = ask()
	assert.Equal(t, "third", name)
	require.NoError(t, os.WriteFile(files.Cert, []byte("rubbish"), 0o600))
	assert.Error(t, p.Reload())
	name, _ = ask()
	assert.Equal(t, "third", name)
	p.end(t)

	cfg.TLS = TLS{Cert: files.Cert}
	_, err := New(cfg)
	assert.Error(t, err, "a certificate without a key")
}

// metrics returns the metrics of the proxy.
func (p *Proxy) metrics() string {
	w := httptest.NewRecorder()
	metricsOf(p).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Admin.Token = "0123456789abcdef"
	s := serve(t, cfg)
	assert.Equal(t, 401, status(t, "GET", s.back.URL+"/-/metrics"))
	read := func() (string, int) {
		resp, text := send(t, "GET", s.back.URL+"/-/metrics", nil, "Authorization",
			"Bearer 0123456789abcdef")
		require.Equal(t, 200, resp.StatusCode)
		assert.Contains(t, resp.Header.Get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
		parser, samples := expfmt.NewTextParser(model.UTF8Validation), 0
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		require.NoError(t, err)
		for _, f := range families {
			samples += len(f.Metric)
		}
		return text, samples
	}
	for range 3 {
		status(t, "GET", s.front.URL)
	}
	_, before := read()
	for i := range 100 { // as many callers as the table has room for
		s.handler.ServeHTTP(httptest.NewRecorder(), requestOf(fmt.Sprintf("198.51.100.%d:1", i), "/"))
	}
	text, after := read()
	assert.Equal(t, before, after, "no series depends on the clients")
	assert.Contains(t, text, "# TYPE weir_requests_total counter\n")
	assert.Contains(t, text, `weir_requests_total{outcome="admitted"} 101`+"\n")
	assert.Contains(t, text, `weir_requests_total{outcome="denied"} 2`+"\n")
	assert.Contains(t, text, "weir_stopping 0\n")
}

// TestMetricsOfTheUpstream counts responses by the class of their status, and clients that left
// before. What a client makes fail by its body says nothing of the upstream.
func TestMetricsOfTheUpstream(t *testing.T) {
	cfg := config(t, "100/1d")
	arrived := make(chan struct{})
	cfg.Bodies.Max, cfg.MaxInFlight = 10, 77
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/404":
			w.WriteHeader(404)
		case "/reset":
			panic(http.ErrAbortHandler)
		case "/hang":
			close(arrived)
			<-r.Context().Done()
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	s := serve(t, cfg)
	for path, want := range map[string]int{"/200": 200, "/404": 404, "/reset": 502} {
		assert.Equal(t, want, status(t, "POST", s.front.URL+path))
	}
	resp, _ := send(t, "POST", s.front.URL+"/large",
		io.MultiReader(strings.NewReader("more than ten bytes")))
	assert.Equal(t, 413, resp.StatusCode)
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.front.URL+"/hang", nil)
	require.NoError(t, err)
	go func() {
		<-arrived
		hangUp()
	}()
	_, err = http.DefaultClient.Do(r)
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return s.open.Load() == 0 }, 10*time.Second, time.Millisecond)

	text := s.metrics()
	for class, want := range map[string]int{"2xx": 1, "4xx": 1, "error": 1, "gone": 1} {
		assert.Contains(t, text, fmt.Sprintf("weir_upstream_duration_seconds_count{status=%q} %d\n",
			class, want))
	}
	assert.Equal(t, 7, strings.Count(text, "weir_upstream_duration_seconds_count"))
	assert.Contains(t, text, `weir_upstream_duration_seconds_bucket{status="2xx",le="60"} 1`+"\n")
	assert.Contains(t, text, "weir_requests_in_flight_limit 77\n")
	assert.Contains(t, text, "\ngo_goroutines ")
	assert.Contains(t, text, "\nprocess_open_fds ")
}

// TestTheDenyListOutlivesTheProcess checks that an entry added to the deny list at run time is
// there after a restart, until it ends, while entries of the penalty box are not.
func TestTheDenyListOutlivesTheProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "deny")
	cfg := config(t, "1/1d")
	cfg.DenyFile = name
	cfg.Deny = []httplimit.DenyEntry{entry(t, "10.9.9.9")}
	cfg.Guard.Penalty = httplimit.Penalty{Denials: 1, Within: time.Hour, For: time.Hour}
	s := serve(t, cfg)
	for _, body := range []string{`{"what":"192.0.2.0/24"}`, `{"what":"2001:db8::1","for":"7d"}`,
		`{"what":"a key\n# \"with\" everything "}`, `{"what":"198.51.100.1"}`} {
		assert.Equal(t, 204, code(deny(t, s, "POST", body)), body)
	}
	assert.Equal(t, 204, code(deny(t, s, "DELETE", `{"what":"198.51.100.1"}`)))
	status(t, "GET", s.front.URL)
	status(t, "GET", s.front.URL)
	assert.Contains(t, fmt.Sprint(s.denied.Entries()), "127.0.0.1", "the penalty box has listed it")

	again := serve(t, cfg)
	assert.Equal(t, names(s.denied.Added()), names(again.denied.Added()))
	assert.Len(t, again.denied.Added(), 4)
	_, ok := again.denied.Lookup("a key\n# \"with\" everything", netip.Addr{})
	assert.True(t, ok)
	assert.NotContains(t, fmt.Sprint(again.denied.Entries()), "127.0.0.1")
	until := again.denied.Entries()[2].Until
	assert.WithinDuration(t, time.Now().Add(7*24*time.Hour), until, time.Hour)

	// An edited file is read on a signal: entries removed from it are removed, except those of the
	// command line. A mistake changes nothing.
	require.NoError(t, os.WriteFile(name, []byte("# edited\n\n203.0.113.0/24 2126-01-01T00:00:00Z\n"+
		"# end\n"), 0o600))
	require.NoError(t, again.Reload())
	assert.Len(t, again.denied.Added(), 2)
	for _, text := range []string{"moon", "192.0.2.1 soon", `"no end`, `""`} {
		require.NoError(t, os.WriteFile(name, []byte("192.0.2.7\n"+text+"\n"), 0o600))
		assert.ErrorContains(t, again.Reload(), name+":2:", text)
		assert.Len(t, again.denied.Added(), 2)
		_, err := New(cfg)
		assert.Error(t, err, "it does not start without its list")
	}
}

// TestTheDenyListIsReloadedWhileItChanges checks that a reload does not lose concurrent changes.
func TestTheDenyListIsReloadedWhileItChanges(t *testing.T) {
	const changes = 50
	cfg := config(t, "1/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	s := serve(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for ctx.Err() == nil {
			assert.NoError(t, s.Reload())
		}
	})
	for i := range changes {
		assert.Equal(t, 204, code(deny(t, s, "POST", fmt.Sprintf(`{"what":"192.0.2.%d"}`, i))))
	}
	stop()
	reloads.Wait()
	assert.Len(t, s.denied.Added(), changes)
	require.NoError(t, s.Reload())
	assert.Len(t, s.denied.Added(), changes, "also in the file")
}

// TestDrainDelay checks that during the delay the health check fails and requests are still served.
func TestDrainDelay(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.DrainDelay = time.Hour
	p := run(t, cfg)
	p.stop()
	require.Eventually(t, func() bool {
		return status(t, "GET", "http://"+p.back+"/-/healthz") == 503
	}, 10*time.Second, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{}}
	for range 3 {
		resp, err := client.Get("http://" + p.front)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		assert.True(t, resp.Close, "the next request comes on a new connection, to another instance")
	}
	select {
	case err := <-p.done:
		t.Fatal("stopped", err)
	default:
	}
}

func TestUnreachableRedisIsReportedAtTheStart(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	var log bytes.Buffer
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	cfg := config(t, "1/1d")
	cfg.Redis.URL, cfg.Redis.Password = "redis://"+addr, "secret"
	cfg.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("redis cannot be reached")) {
			stop()
		}
		return log.Write(line)
	}), nil))
	p, err := New(cfg)
	require.NoError(t, err)
	assert.NoError(t, p.Run(ctx))
	assert.Contains(t, log.String(), "redis cannot be reached")
	assert.Contains(t, log.String(), "until_then=local")
	assert.NotContains(t, log.String(), "secret")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
