package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirgo/weir/httplimit"
)

// targetFields are the fields that some servers take for the URL or the method of a request. If a
// limit depends on these, nobody may set them: the upstream would not serve the request that was
// counted.
var targetFields = setOf(
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Override-Url",
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// plainSet returns the plain names of fields.
func plainSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[plainName(name)] = true
	}
	return set
}

// plainName returns the name of a field with hyphens for all that is neither a letter nor a digit.
// Programs behind CGI or WSGI cannot tell such spellings apart: X.Real_IP is their HTTP_X_REAL_IP.
func plainName(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, name))
}

// clientFields says which fields of a request the upstream gets.
type clientFields struct {
	cfg        *Config
	ip         httplimit.IP
	drop, pass map[string]bool // plain names: see Config.Strip
	plain      map[string]bool // the usual fields that strip keeps of everybody
}

func newClientFields(cfg *Config, ip httplimit.IP) *clientFields {
	f := &clientFields{cfg: cfg, ip: ip, drop: plainSet(cfg.Strip), pass: plainSet(cfg.Pass),
		plain: make(map[string]bool, len(usualFields))}
	for name := range usualFields {
		f.plain[name] = !f.ofProxy(name) && !cfg.By.shadows(name, name)
	}
	return f
}

// ofProxy reports whether only a trusted proxy may set a field. A field that callers are told apart
// by may be one of a user's, since that says that clients send it.
func (f *clientFields) ofProxy(plain string) bool {
	switch {
	case f.drop[plain]:
		return true
	case usualFields[plain] || f.pass[plain]:
		return false
	}
	claim := claimOf(plain)
	return claim != claimsNothing && (claim != claimsUser || !slices.Contains(f.cfg.By.headers, plain))
}

// strip removes the fields that the peer of a request may not set, and other spellings of those and
// of the fields that callers are told apart by.
func (f *clientFields) strip(h http.Header, trusted bool) {
	for name := range h {
		if f.plain[name] {
			continue
		}
		plain := plainName(name)
		switch {
		case f.ofProxy(plain) && (!trusted || name != plain),
			f.cfg.By.shadows(name, plain),
			f.cfg.byTarget() && targetFields[plain]:
			delete(h, name)
		}
	}
	h.Del("Proxy") // CGI programs see it as HTTP_PROXY
}

// forward sets the forwarding fields. The incoming ones are kept from a trusted peer only, as in
// the limiter, and of the two fields for chains only the one that trusted peers write.
func (f *clientFields) forward(r *httputil.ProxyRequest) {
	trusted := f.trusts(r.In)
	f.strip(r.Out.Header, trusted)
	switch {
	case trusted && f.cfg.Forwarded:
		f.forwardChain(r)
	case trusted:
		copyField(r, "X-Forwarded-For") // SetXForwarded appends the peer to it
		r.SetXForwarded()
		copyField(r, "X-Forwarded-Host")
		copyField(r, "X-Forwarded-Proto") // TLS may end at the peer
	default:
		r.SetXForwarded()
	}
}

// forwardChain keeps Forwarded and derives X-Forwarded-For from it, since the incoming fields that
// begin with X-Forwarded may be the client's.
func (f *clientFields) forwardChain(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Forwarded") {
			delete(r.Out.Header, name)
		}
	}
	copyField(r, "Forwarded")
	peer, _ := httplimit.RemoteAddr().Addr(r.In)
	if addr, err := f.ip.Addr(r.In); err == nil && addr != peer {
		r.Out.Header.Set("X-Forwarded-For", addr.String()) // SetXForwarded appends the peer to it
	}
	r.SetXForwarded()
}

// trusts reports whether the peer of a request is a trusted proxy.
func (f *clientFields) trusts(r *http.Request) bool {
	peer, err := httplimit.RemoteAddr().Addr(r)
	return err == nil && f.trustsAddr(peer)
}

func (f *clientFields) trustsAddr(addr netip.Addr) bool { return contain(f.cfg.Trust, addr) }

func copyField(r *httputil.ProxyRequest, name string) {
	if values := r.In.Header[name]; len(values) > 0 {
		r.Out.Header[name] = values
	}
}
