package accesslog

import (
	"bytes"
	"net/netip"
	"strings"
)

// client sets the address of e. text is an address, with or without a port, or a list of them as in
// X-Forwarded-For: the last is the peer.
func (p *Parser) client(text []byte, e *Entry) error {
	if i := bytes.LastIndexByte(text, ','); i >= 0 {
		if !p.format.Lists {
			return ErrList
		}
		e.forwarded, text = text[:i], bytes.TrimSpace(text[i+1:])
	}
	e.IP = withoutPort(text)
	e.IPv4 = plainIPv4(e.IP)
	return nil
}

// cachedAddress is the last text that was parsed as an address.
type cachedAddress struct {
	text  []byte
	valid bool
}

// isAddress reports whether text is an address, with or without a port, or a list of addresses.
func (p *Parser) isAddress(text []byte) bool {
	if plain := plainIPv4(text); plain ||
		bytes.IndexByte(text, ':') < 0 && bytes.IndexByte(text, ',') < 0 {
		return plain
	}
	c := &p.address
	if !bytes.Equal(c.text, text) {
		c.text = append(c.text[:0], text...)
		c.valid = isList(string(text))
	}
	return c.valid
}

// isList reports whether text is a list of addresses as in X-Forwarded-For.
func isList(text string) bool {
	for one := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		addr := withoutPort([]byte(strings.TrimSpace(one)))
		if _, err := netip.ParseAddr(string(addr)); err != nil {
			return false
		}
	}
	return true
}

// plainIPv4 reports whether addr is an IPv4 address as net/netip formats it.
func plainIPv4(addr []byte) bool { return len(addr) > 0 && ipv4Len(addr) == len(addr) }

// ipv4Len returns the length of the IPv4 address, as net/netip formats it, that begins text; 0 if
// none does. Nearly all lines begin with one; to parse it would take a fifth of the time that a
// line takes.
func ipv4Len(text []byte) int {
	i := 0
	for dots := 0; ; dots++ {
		from, octet := i, 0
		for i < len(text) && text[i]-'0' <= 9 {
			octet = octet*10 + int(text[i]-'0')
			i++
		}
		n := i - from
		switch {
		case n == 0 || n > 3 || octet > 255 || n > 1 && text[from] == '0':
			return 0
		case dots == 3:
			return i
		case i == len(text) || text[i] != '.':
			return 0
		}
		i++
	}
}

// isHost reports whether text is a host name, with or without a port. A name whose last label is a
// number is not: it is an address with something in front.
func isHost(text []byte) bool {
	text, port, _ := bytes.Cut(text, []byte(":"))
	if run(port) < len(port) {
		return false
	}
	digits := true
	for i, c := range text {
		switch {
		case '0' <= c && c <= '9':
		case c == '.' && i > 0:
			digits = true
		case 'a' <= c|0x20 && c|0x20 <= 'z', c == '-' && i > 0, c == '_':
			digits = false
		default:
			return false
		}
	}
	return len(text) > 0 && !digits
}

// withoutPort removes the port from addresses such as 1.2.3.4:56 and [::1]:56, and the brackets.
func withoutPort(addr []byte) []byte {
	if len(addr) > 0 && addr[0] == '[' {
		if i := bytes.IndexByte(addr, ']'); i > 0 {
			return addr[1:i]
		}
		return addr
	}
	if i := bytes.IndexByte(addr, ':'); i >= 0 && bytes.IndexByte(addr[i+1:], ':') < 0 {
		return addr[:i]
	}
	return addr
}

// Forwarded returns the X-Forwarded-For of the request, and whether the log has such a field. In
// the combined format it is the quoted field after the user agent, as in the configuration that
// nginx comes with.
func (e *Entry) Forwarded() (list string, logged bool) {
	if len(e.forwarded) > 0 {
		return string(e.forwarded), true
	}
	text, ok := e.afterStatus(2)
	return field(text), ok
}

// ListsAddresses reports whether some field after the status is a list of addresses.
func (e *Entry) ListsAddresses() bool {
	if len(e.forwarded) > 0 {
		return isList(string(e.forwarded))
	}
	text, rest, ok := nextQuoted(e.rest)
	for ; ok; text, rest, ok = nextQuoted(rest) {
		if len(text) > 0 && strings.IndexByte("0123456789abcdefABCDEF:[", text[0]) >= 0 &&
			isList(field(text)) {
			return true
		}
	}
	return false
}
