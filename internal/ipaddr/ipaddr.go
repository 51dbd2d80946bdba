// Package ipaddr gives each IP address one notation, so that none gives a client a second key.
package ipaddr

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
