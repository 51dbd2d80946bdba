package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// peersChecked is how many requests a middleware looks at before it takes it that clients connect
// to it directly.
const peersChecked = 1000

// usesAddress reports whether an address matters: as a key, or for MaxKeysPerClient.
func (m *middleware) usesAddress() bool {
	byIP := func(e Extractor) bool { _, ok := findIP(e); return ok }
	return m.keys != nil || byIP(m.Extractor) ||
		slices.ContainsFunc(m.policies, func(p *policy) bool { return byIP(p.Extractor) })
}

// warnOfProxy logs a warning, once, if r comes from a private address that ClientIP does not trust:
// it may be a load balancer's, and then all its clients are taken for one. A loopback address must
// have sent a field of a proxy too, since programs are tried out there.
func (m *middleware) warnOfProxy(r *http.Request) {
	m.unchecked.Add(-1)
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil || m.ClientIP.trusts(peer) {
		return
	}
	forwarded := len(r.Header["X-Forwarded-For"]) > 0 || len(r.Header["Forwarded"]) > 0
	private := clientaddr.IsPrivate(peer) || peer.IsLoopback() && forwarded
	if !private || m.unchecked.Swap(0) <= 0 {
		return // or another request logs it, or was the last to be looked at
	}
	field := "Extractor"
	if _, ok := findIP(m.Extractor); !ok {
		field = "ClientIP"
	}
	var once throttle.Throttle
	m.log(r.Context(), &once, slog.LevelWarn,
		"httplimit: requests come from a private address; if it is a proxy's, all its clients share "+
			"one address: trust it (Caddy: trusted_proxies, weir proxy: --trust)",
		peer.String(), slog.String("peer", peer.String()),
		slog.String("line_1", `proxies := []netip.Prefix{netip.MustParsePrefix("`+
			netip.PrefixFrom(peer, peer.BitLen()).String()+`")}`),
		slog.String("line_2", field+`: httplimit.ClientIP(proxies),`))
}

// ServeHTTP answers with what ip sees of a request: the TCP peer, the fields that name further
// addresses, and the key. Serve it behind a new load balancer, compare the key with your own
// address, and remove it again, since it shows the addresses of your proxies:
//
//	mux.Handle("GET /which-address", httplimit.ClientIP(proxies))
func (ip IP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	read, trust := "", "not trusted"
	if peer, err := parsePeer(r.RemoteAddr); err == nil && ip.trusts(peer) {
		read, trust = "X-Forwarded-For", "trusted"
		if ip.forwarded {
			read = "Forwarded"
		}
	}
	key, err := ip.Extract(r)
	if err != nil {
		key = err.Error()
	}
	h := w.Header()
	h.Set(fieldContentType, "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = fmt.Fprintf(w, "key: %s\npeer: %s, %s\n", key, r.RemoteAddr, trust)
	for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
		for _, line := range r.Header[name] {
			not := ""
			if name != read {
				not = ", not read"
			}
			_, _ = fmt.Fprintf(w, "%s: %q%s\n", name, line, not)
		}
	}
}
