package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/redislimit/redistest"
)

func hitsOf(n uint64) *wrapperspb.UInt64Value { return wrapperspb.UInt64(n) }

// yearly are rules with periods that do not end during a test.
const yearly = `domain: d
descriptors:
  - {key: three, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: many, rate_limit: {unit: year, requests_per_unit: 60}}
`

// server is a running weir serve.
type server struct {
	*process
	grpc, http, admin string
}

const testToken = "0123456789abcdef"

// serveProcess starts the server on free ports.
func serveProcess(t *testing.T, args ...string) *server {
	t.Helper()
	args = append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin",
		"127.0.0.1:0"}, args...)
	cmd := exec.Command("weir", args...)
	cmd.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN="+testToken)
	s, at := startProcess(t, cmd, `msg=serving grpc=(\S+) http=(\S+) admin=(\S+)`)
	return &server{s, at[1], at[2], at[3]}
}

func (s *server) dial(t *testing.T, cfg *tls.Config) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if cfg != nil {
		creds = credentials.NewTLS(cfg)
	}
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask requests one hit on a key.
func ask(
	ctx context.Context, conn *grpc.ClientConn, key string,
) (pb.RateLimitResponse_Code, error) {
	resp, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "d",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: key,
			Value: "x"}}}}})
	return resp.GetOverallCode(), err
}

// admitted requests n hits one by one and returns how many were OK.
func admitted(t *testing.T, conn *grpc.ClientConn, key string, n int) (ok int) {
	t.Helper()
	for range n {
		code, err := ask(t.Context(), conn, key)
		require.NoError(t, err)
		if code == pb.RateLimitResponse_OK {
			ok++
		}
	}
	return ok
}

func rulesFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestServeStopsGracefully checks that a stop waits for a request in flight, and that health checks
// fail meanwhile.
func TestServeStopsGracefully(t *testing.T) {
	s := serveProcess(t, "--rules", rulesFile(t, yearly))
	conn := s.dial(t, nil)
	assert.Equal(t, 3, admitted(t, conn, "three", 5))
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
		&healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, first.Status)

	// Send part of a request over HTTP: the server waits for the rest.
	slow, err := net.Dial("tcp", s.http)
	require.NoError(t, err)
	defer slow.Close()
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "three", "value": "y"}]}]}`
	_, err = fmt.Fprintf(slow,
		"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	require.NoError(t, err)
	answers := bufio.NewReader(slow)
	line, err := answers.ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "100 Continue", "the request is under way")

	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	next, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, next.Status)
	_, err = io.WriteString(slow, body)
	require.NoError(t, err)
	rest, _ := io.ReadAll(answers)
	assert.Contains(t, string(rest), "200 OK")
	assert.Contains(t, string(rest), `"OK"`)
	require.NoError(t, conn.Close(), "end the watch")
	<-s.rest
	assert.NoError(t, s.Wait(), "exit 0")
}

// TestServeHangUp checks that SIGHUP loads the rules although no file has changed, and that rules
// with a mistake change nothing.
func TestServeHangUp(t *testing.T) {
	file := rulesFile(t, yearly)
	s := serveProcess(t, "--rules", file)
	conn := s.dial(t, nil)
	assert.Equal(t, 2, admitted(t, conn, "three", 2))
	require.NoError(t, s.Process.Signal(syscall.SIGHUP))
	metric := func(name string) string {
		_, text := get(t, "http://"+s.admin+"/metrics")
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	require.Eventually(t, func() bool {
		return metric("ratelimit_service_config_load_success_total") == "2"
	}, time.Minute, 5*time.Millisecond)
	assert.Equal(t, 1, admitted(t, conn, "three", 3), "the count was kept")
	require.NoError(t, os.WriteFile(file, []byte("domain: [\n"), 0o600))
	require.NoError(t, s.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		return metric("ratelimit_service_config_refused") == "1"
	}, time.Minute, 5*time.Millisecond)
	assert.Zero(t, admitted(t, conn, "three", 2), "the old rules are in force")
	assert.Contains(t, s.stop(t), "rules refused; the old ones stay in force")
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// TestServeJSON posts to /json with curl.
func TestServeJSON(t *testing.T) {
	s := serveProcess(t, "--rules", rulesFile(t, yearly))
	curl, err := exec.LookPath("curl")
	require.NoError(t, err)
	post := func(body string) string {
		out, err := exec.Command(curl, "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", body,
			"http://"+
				s.http+"/json").Output()
		require.NoError(t, err)
		return string(out)
	}
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "three", "value": "x"}]}]}`
	var codes []string
	for range 4 {
		codes = append(codes, post(body))
	}
	assert.Equal(t, []string{"200", "200", "200", "429"}, codes)
	for _, bad := range []string{"", "x", `{"domain": "d"}`, `{"domain": "d", "descriptor": []}`} {
		assert.Equal(t, "400", post(bad), bad)
	}
}

// TestServeHybrid checks that two servers count together on Redis, and each with half of the limit
// without it.
func TestServeHybrid(t *testing.T) {
	redis := redistest.Start(t)
	file := rulesFile(t, yearly)
	var conns []*grpc.ClientConn
	var s *server
	for range 2 {
		s = serveProcess(t, "--rules", file, "--redis", "redis://"+redis.Addr, "--instances", "2",
			"--redis-timeout", "1s")
		conns = append(conns, s.dial(t, nil))
	}
	for i := range 20 {
		assert.Equal(t, 1, admitted(t, conns[i%2], "many", 1))
	}
	redis.Kill()
	// Each server has half of the remaining 40.
	assert.Equal(t, 20, admitted(t, conns[0], "many", 70))
	assert.Equal(t, 20, admitted(t, conns[1], "many", 70))
	// The page says so.
	require.Eventually(t, func() bool { // the breaker opens after so many calls
		admitted(t, conns[1], "many", 10)
		resp, err := http.Get("http://" + s.admin + "/-/stats")
		require.NoError(t, err)
		defer resp.Body.Close()
		var shown live.Shown
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&shown))
		return slices.ContainsFunc(shown.Deciding, func(d live.Deciding) bool {
			return d.Source == "local" && d.Breaker == "open" && d.Since > 0
		})
	}, 20*time.Second, time.Millisecond)
}

// TestServeOnRedis checks that a server decides alone by default while Redis hangs and when it is
// gone, and that with --instances 0 it decides nothing and says Unavailable.
func TestServeOnRedis(t *testing.T) {
	redis := redistest.Start(t)
	args := []string{"--rules", rulesFile(t, yearly), "--redis", "redis://" + redis.Addr,
		"--redis-timeout", "1s"}
	one := serveProcess(t, args...).dial(t, nil)
	two := serveProcess(t, append(args, "--instances", "0")...).dial(t, nil)
	assert.Equal(t, 3, admitted(t, one, "three", 2)+admitted(t, two, "three", 5))
	assert.Equal(t, 1, admitted(t, one, "many", 1))
	redis.Freeze()
	assert.Equal(t, 2, admitted(t, one, "many", 2))
	_, err := ask(t.Context(), two, "three")
	assert.Equal(t, codes.Unavailable, status.Code(err), err)
	redis.Kill()
	assert.Equal(t, 57, admitted(t, one, "many", 70))
	_, err = ask(t.Context(), two, "three")
	assert.Equal(t, codes.Unavailable, status.Code(err), err)
}

// TestServeRedisPassword checks that serve reads the password of Redis from a file and from the
// environment. A Redis that refuses it, or is down, is logged at the start, and the server starts
// nevertheless.
func TestServeRedisPassword(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", "correct horse")
	args := []string{"--rules", rulesFile(t, yearly), "--redis", "redis://" + redis.Addr,
		"--redis-timeout",
		"1s"}
	password := rulesFile(t, "correct horse\n")
	s := serveProcess(t, append(args, "--redis-password-file", password)...)
	assert.Equal(t, 1, admitted(t, s.dial(t, nil), "three", 1))
	assert.NotContains(t, s.stop(t), "redis")

	s = serveProcess(t, append(args, "--instances", "0")...)
	_, err := ask(t.Context(), s.dial(t, nil), "three")
	assert.Error(t, err)
	s.logged(t, `msg="redis cannot be reached" error="NOAUTH .* until_then="no decisions"`)
	s.stop(t)

	t.Setenv("WEIR_REDIS_PASSWORD", "correct horse")
	s = serveProcess(t, args...)
	assert.Equal(t, 2, admitted(t, s.dial(t, nil), "three", 5))
	assert.NotContains(t, s.stop(t), "redis cannot")

	redis.Kill()
	s = serveProcess(t, args...)
	assert.Equal(t, 3, admitted(t, s.dial(t, nil), "three", 5))
	s.logged(t, `msg="redis cannot be reached" error=".*refused" until_then=local`)
	s.stop(t)
}

// authority issues certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	dir  string
	last int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	a.issue(t, "ca")
	return a
}

// issue writes NAME.pem and NAME.key, signed by the authority.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.last++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if a.cert == nil {
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	if a.cert == template {
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(t, err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	require.NoError(t, os.WriteFile(cert,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600))
	return cert, key
}

// client returns the configuration of a client that trusts a. The client has a certificate unless
// cert is empty.
func (a *authority) client(t *testing.T, cert, key string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AddCert(a.cert)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// TestServeTLS connects clients with and without TLS, and with and without a certificate.
func TestServeTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	cert, key := a.issue(t, "server")
	clientCert, clientKey := a.issue(t, "client")
	strangerCert, strangerKey := other.issue(t, "stranger")
	file := rulesFile(t, yearly)
	reaches := func(s *server, cfg *tls.Config) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := ask(ctx, s.dial(t, cfg), "many")
		return err == nil
	}

	plain := serveProcess(t, "--rules", file, "--tls-cert", cert, "--tls-key", key)
	assert.True(t, reaches(plain, a.client(t, "", "")))
	assert.False(t, reaches(plain, nil), "no TLS")
	assert.False(t, reaches(plain, other.client(t, "", "")),
		"the certificate is not of an authority that the client trusts")
	old := serialOf(t, plain.grpc, a)
	a.issue(t, "server")
	renewed := serialOf(t, plain.grpc, a)
	assert.NotEqual(t, old, renewed, "a renewed certificate is used")
	require.NoError(t, os.WriteFile(cert, []byte("the half of one"), 0o600))
	assert.Equal(t, renewed, serialOf(t, plain.grpc, a),
		"the old one is used until the new one is complete")
	a.issue(t, "server")

	mutual := serveProcess(t, "--rules", file, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca",
		filepath.Join(a.dir, "ca.pem"))
	assert.True(t, reaches(mutual, a.client(t, clientCert, clientKey)))
	assert.False(t, reaches(mutual, a.client(t, "", "")), "no certificate")
	assert.False(t, reaches(mutual, a.client(t, strangerCert, strangerKey)),
		"a certificate of another authority")
}

// TestServeConnectionAge starts a second server behind the address of the first. A client that
// makes calls all the time is moved to it within the age of its connection and the grace, and no
// call fails. Without the flags it stays.
func TestServeConnectionAge(t *testing.T) {
	const age, grace = time.Second, time.Minute
	for _, limited := range []bool{true, false} {
		var flags, servers []string
		within := 3 * age
		if limited {
			within = age*11/10 + grace // the age varies by a tenth
			flags = []string{"--grpc-max-connection-age", age.String(), "--grpc-max-connection-age-grace",
				grace.String()}
		}
		for _, name := range []string{"first", "second"} {
			file := rulesFile(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, "+
				"requests_per_unit: 1000000, name: "+name+"}}]\n")
			servers = append(servers, serveProcess(t, append(flags, "--rules", file)...).grpc)
		}
		var current atomic.Int64
		conn, err := grpc.NewClient("passthrough:///both",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", servers[current.Load()])
			}))
		require.NoError(t, err)
		defer conn.Close()
		began, moved := time.Now(), false
		for calls := 0; !moved && time.Since(began) < within; calls++ {
			resp, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
				&pb.RateLimitRequest{Domain: "d",
					Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}}}})
			require.NoError(t, err, "call %d", calls)
			moved = resp.Statuses[0].CurrentLimit.Name == "second"
			current.Store(1) // the second server is there
		}
		assert.Equal(t, limited, moved)
	}
}

// TestServeXDS runs servers whose rules come from an xDS server, with and without TLS. They are not
// healthy and decide nothing before the first rules.
func TestServeXDS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "control")
	clientCert, clientKey := a.issue(t, "client")
	server := a.client(t, cert, key)
	server.ClientCAs, server.ClientAuth = server.RootCAs, tls.RequireAndVerifyClientCert
	for name, row := range map[string]struct {
		creds credentials.TransportCredentials
		flags []string
	}{
		"plain": {insecure.NewCredentials(), nil},
		"TLS": {credentials.NewTLS(server), []string{"--xds-ca", filepath.Join(a.dir, "ca.pem"),
			"--xds-cert", clientCert, "--xds-key", clientKey}},
	} {
		t.Run(name, func(t *testing.T) {
			configs := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
			control := grpc.NewServer(grpc.Creds(row.creds))
			defer control.Stop()
			discovery.RegisterAggregatedDiscoveryServiceServer(control,
				xdsserver.NewServer(context.Background(), configs, nil))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			go func() { _ = control.Serve(l) }()

			s := serveProcess(t, append(row.flags, "--xds", l.Addr().String(), "--xds-node", "me")...)
			conn := s.dial(t, nil)
			_, err = ask(t.Context(), conn, "three")
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.ErrorContains(t, err, "no rate limit configuration loaded")
			assert.Equal(t, 500, statusOf(t, "http://"+s.http+"/healthcheck"))
			watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
				&healthpb.HealthCheckRequest{Service: "ratelimit"})
			require.NoError(t, err)
			for _, want := range []healthpb.HealthCheckResponse_ServingStatus{2, 1} {
				next, err := watch.Recv()
				require.NoError(t, err)
				assert.Equal(t, want, next.Status)
				snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{
					resource.RateLimitConfigType: {&rlsconf.RateLimitConfig{Name: "r", Domain: "d",
						Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "three",
							RateLimit: &rlsconf.RateLimitPolicy{
								Unit: rlsconf.RateLimitUnit_DAY, RequestsPerUnit: 3}}}}}})
				require.NoError(t, err)
				require.NoError(t, configs.SetSnapshot(t.Context(), "me", snapshot))
			}
			assert.GreaterOrEqual(t, admitted(t, conn, "three", 7), 3)
			assert.Zero(t, admitted(t, conn, "three", 1))
			assert.Equal(t, 200, statusOf(t, "http://"+s.http+"/healthcheck"))
		})
	}
}

func serialOf(t *testing.T, addr string, a *authority) string {
	t.Helper()
	cfg := a.client(t, "", "")
	cfg.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", addr, cfg)
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestRulesAdmin inspects and resets a caller and reloads the rules from the command line, for a
// server and for a proxy.
func TestRulesAdmin(t *testing.T) {
	t.Setenv("WEIR_ADMIN_TOKEN", testToken)
	file := rulesFile(t, yearly+
		"rate_limits: [{actions: [{generic_key: {descriptor_key: three, descriptor_value: x}}]}]\n")
	s := serveProcess(t, "--rules", file)
	conn := s.dial(t, nil)
	p := proxyProcess(t, "--rules", file)
	for name, at := range map[string]struct {
		admin string
		spend func() bool
	}{
		"server": {s.admin, func() bool { return admitted(t, conn, "three", 1) == 1 }},
		"proxy":  {p.back, func() bool { return statusOf(t, p.front) == 200 }},
	} {
		weir := func(args ...string) (int, string) {
			var out bytes.Buffer
			code := run(append(args, "--admin", at.admin), nil, &out, &out)
			return code, out.String()
		}
		for range 3 {
			assert.True(t, at.spend(), name)
		}
		assert.False(t, at.spend(), name)
		code, text := weir("why", "-d", "three=x")
		assert.Equal(t, 0, code, text)
		assert.Regexp(t, `(?s)^three=x is denied by three, and passes in \d+h.*3 per year +fixed window +6 +- +3 +0 +in `,
			text, name)
		code, text = weir("rules", "reset", "-d", "three=x", "--domain", "d")
		assert.Equal(t, 0, code, text)
		assert.True(t, at.spend(), name)
		_, text = weir("why", "-d", "three=x")
		assert.Regexp(t, `(?s)^three=x passes\n.*3 per year +fixed window +6 +- +1 +2 +now`, text, name)
		code, text = weir("rules", "reset", "-d", "nobody")
		assert.Equal(t, 1, code)
		assert.Equal(t, "weir: No rule limits this descriptor.\n", text)
		code, text = weir("rules", "reload")
		assert.Equal(t, 0, code)
		assert.Regexp(t, `^2 rules, version [0-9a-f]{12}\n$`, text)
	}
	require.NoError(t, os.WriteFile(file, []byte("domain: ''\n"), 0o600))
	for _, admin := range []string{s.admin, p.back} {
		var out bytes.Buffer
		assert.Equal(t, 1, run([]string{"rules", "reload", "--admin", admin}, nil, &out, &out))
		assert.Contains(t, out.String(), "rules.yaml:1:9: config file cannot have empty domain")
	}
	t.Setenv("WEIR_ADMIN_TOKEN", "")
	var out bytes.Buffer
	assert.Equal(t, 1, run([]string{"rules", "reload", "--admin", s.admin}, nil, &out, &out))
	assert.Contains(t, out.String(), "the admin token")
}
