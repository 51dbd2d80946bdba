package httplimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirgo/weir/internal/throttle"
)

// peersChecked is how many requests a middleware looks at before it takes it that clients connect
// to it directly.
const peersChecked = 1000

// sharedNet is the range of RFC 6598, which clouds use as a private one.
var sharedNet = netip.MustParsePrefix("100.64.0.0/10")

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
	private := peer.IsPrivate() || sharedNet.Contains(peer) || peer.IsLoopback() && forwarded
	if !private || m.unchecked.Swap(0) <= 0 {
		return // or another request logs it, or was the last to be looked at
	}
	field := "Extractor"
	if _, ok := findIP(m.Extractor); !ok {
		field = "ClientIP"
	}
	var once throttle.Throttle
	m.log(r.Context(), &once, slog.LevelWarn, "httplimit: requests come from a private address; if it is "+
		"a proxy's, all its clients share one address: trust it (Caddy: trusted_proxies, weir proxy: --trust)",
		peer.String(), []slog.Attr{
			slog.String("peer", peer.String()),
			slog.String("line_1", `proxies := []netip.Prefix{netip.MustParsePrefix("`+
				netip.PrefixFrom(peer, peer.BitLen()).String()+`")}`),
			slog.String("line_2", field+`: httplimit.ClientIP(proxies),`),
		})
}
