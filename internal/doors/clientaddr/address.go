// Package clientaddr gives each IP address one notation, so that none gives a client a second key,
// has the ranges that only a network of one's own uses, and bounds the keys that one client uses,
// so that it cannot fill the table.
package clientaddr

import (
	"net/netip"
	"strings"
)

// Plain returns addr without a zone, and an IPv4-mapped one as an IPv4 address.
func Plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// PlainPrefix returns p, and a prefix of IPv4-mapped addresses as an IPv4 prefix.
func PlainPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// ParsePrefix parses an address or a prefix, and returns the plain prefix. It may have bits beyond
// its length.
func ParsePrefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return PlainPrefix(p), err
	}
	addr, err := netip.ParseAddr(text)
	addr = Plain(addr)
	return netip.PrefixFrom(addr, addr.BitLen()), err
}

// shared is the range of RFC 6598, which clouds and overlay networks use as a private one.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// IsPrivate reports whether addr is in a range that is not routed on the Internet, so that a peer
// with it may be a load balancer: private, shared (100.64.0.0/10), link-local, or loopback.
func IsPrivate(addr netip.Addr) bool {
	addr = Plain(addr)
	return addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsLoopback() || shared.Contains(addr)
}
