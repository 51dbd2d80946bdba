package httplimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/httplimit"
)

// A middleware that may be behind a proxy it does not know says so at its first request, and how to
// mend it.
func TestWarnsOfAProxyAtOnce(t *testing.T) {
	trusted := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	keyed := httplimit.Headers("X-Api-Key")
	for name, row := range map[string]struct {
		extractor httplimit.Extractor
		clientIP  httplimit.IP
		peer      string
		xff       string
		want      string // the second line; empty: no warning
	}{
		"keyed by the peer": {extractor: httplimit.RemoteAddr(), peer: "10.0.0.5:1",
			want: "Extractor"},
		"joined with a header": {extractor: httplimit.Join(httplimit.RemoteAddr(), keyed),
			peer: "192.168.0.1:1", want: "Extractor"},
		"keyed by a header":          {extractor: keyed, peer: "10.0.0.5:1", want: "ClientIP"},
		"in the cloud's own range":   {extractor: keyed, peer: "100.64.3.2:1", want: "ClientIP"},
		"IPv6":                       {extractor: keyed, peer: "[fd00::1]:1", want: "ClientIP"},
		"on the balancer's own link": {extractor: keyed, peer: "[fe80::1]:1", want: "ClientIP"},
		"a link-local IPv4 address":  {extractor: keyed, peer: "169.254.9.1:1", want: "ClientIP"},
		"a proxy on this machine": {extractor: keyed, peer: "127.0.0.1:1", xff: "192.0.2.1",
			want: "ClientIP"},
		"a test on this machine":    {extractor: keyed, peer: "127.0.0.1:1"},
		"clients connect directly":  {extractor: keyed, peer: "203.0.113.7:1", xff: "192.0.2.1"},
		"the proxy is trusted":      {extractor: trusted, peer: "10.0.0.5:1", xff: "192.0.2.1"},
		"trusted as the ClientIP":   {extractor: keyed, clientIP: trusted, peer: "10.0.0.5:1"},
		"another proxy is trusted":  {extractor: trusted, peer: "172.16.0.9:1", want: "Extractor"},
		"a Unix socket has no peer": {extractor: keyed, peer: "@"},
	} {
		var log bytes.Buffer
		h := httplimit.New(admitting(1, time.Minute), httplimit.Config{
			Extractor: row.extractor, ClientIP: row.clientIP, Limit: 100, Duration: time.Minute,
			Now:    at(noon),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})(http.NotFoundHandler())
		for range 3 {
			r := from(row.peer)
			r.Header.Set("X-Api-Key", "k")
			if row.xff != "" {
				r.Header.Set("X-Forwarded-For", row.xff)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if row.want == "" {
			assert.Empty(t, log.String(), name)
			continue
		}
		assert.Equal(t, 1, strings.Count(log.String(), "private address"), name)
		peer := netip.MustParseAddrPort(row.peer).Addr()
		assert.Contains(t, log.String(), fmt.Sprintf("MustParsePrefix(\\\"%s/%d", peer, peer.BitLen()),
			name)
		assert.Contains(t, log.String(), row.want+": httplimit.ClientIP(proxies),", name)
	}
}

// It looks at the first requests only, so that it costs nothing later.
func TestWarnsOfAProxyAtTheStartOnly(t *testing.T) {
	var log bytes.Buffer
	cfg := hundred()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := httplimit.New(admitting(1, time.Minute), cfg)(http.NotFoundHandler())
	for range 1000 {
		h.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
	}
	h.ServeHTTP(httptest.NewRecorder(), from("10.0.0.5:1"))
	assert.Empty(t, log.String())
}

// What a client sends is shown quoted, as text, and the field that is not believed is marked.
func TestTheAddressSeenIsShownAsText(t *testing.T) {
	ip := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}).Forwarded()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:5000"
	r.Header.Set("X-Forwarded-For", "<script>\x1b[2J")
	r.Header.Set("Forwarded", "for=192.0.2.7")
	w := httptest.NewRecorder()
	ip.ServeHTTP(w, r)
	assert.Equal(t, "key: 192.0.2.7\npeer: 10.0.0.1:5000, trusted\n"+
		`X-Forwarded-For: "<script>\x1b[2J", not read`+"\n"+`Forwarded: "for=192.0.2.7"`+"\n",
		w.Body.String())
	assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
}
