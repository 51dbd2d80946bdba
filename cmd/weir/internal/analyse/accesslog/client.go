package accesslog

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// setClient sets the address of e. text is an address, with or without a port, or if lists is set a
// list of them as in X-Forwarded-For: the last is the peer.
func setClient(text []byte, lists bool, e *Entry) error {
	if i := bytes.LastIndexByte(text, ','); i >= 0 {
		if !lists {
			return ErrList
		}
		e.forwarded, text = text[:i], bytes.TrimSpace(text[i+1:])
	}
	e.IP = withoutPort(text)
	e.IPv4 = plainIPv4(e.IP)
	return nil
}

// cachedAddress finds addresses, and keeps the last text that was parsed as one.
type cachedAddress struct {
	text  []byte
	valid bool
}

// isAddress reports whether text is an address, with or without a port, or a list of addresses.
func (c *cachedAddress) isAddress(text []byte) bool {
	if plain := plainIPv4(text); plain ||
		bytes.IndexByte(text, ':') < 0 && bytes.IndexByte(text, ',') < 0 {
		return plain
	}
	if !bytes.Equal(c.text, text) {
		c.text = append(c.text[:0], text...)
		c.valid = isList(string(text))
	}
	return c.valid
}

// clientOf returns the address and the user of a line, and the text after the bracket before the
// time.
func (c *cachedAddress) clientOf(line []byte) (ip, user, rest []byte, err error) {
	ip, rest, ok := cutAddresses(line)
	if !ok {
		return nil, nil, nil, ErrFormat
	}
	ident, rest, ok := cutSpace(bytes.TrimLeft(rest, " ")) // Jetty pads
	named := !c.isAddress(ip)
	if second := string(ident) != "-" && c.isAddress(ident); ok && named && second && isHost(ip) {
		// Apache's vhost_combined has the virtual host in front. Parsed as the common format, all
		// clients of a host would become one caller.
		ip, named = ident, false
		ident, rest, ok = cutSpace(rest)
	}
	if ok {
		user, rest, ok = cutUser(bytes.TrimLeft(rest, " "))
	}
	if !ok {
		return nil, nil, nil, ErrFormat
	}
	misplaced := string(ident) != "-" && (named || c.hasAddress(ident))
	if misplaced || named && !isHost(ip) || c.hidesClient(user) {
		return nil, nil, nil, ErrCaller
	}
	return ip, user, rest, nil
}

// hasAddress reports whether a word is an address, with or without quotes or a name and an equals
// sign.
func (c *cachedAddress) hasAddress(word []byte) bool {
	word = word[bytes.LastIndexByte(word, '=')+1:]
	return c.isAddress(bytes.Trim(word, `"'(),;`))
}

// hidesClient reports whether the text at the place of the user may contain the client: an address,
// or a hyphen among other words. Then the line begins with something else.
func (c *cachedAddress) hidesClient(user []byte) bool {
	if len(user) == 0 {
		return false
	}
	several := bytes.IndexByte(user, ' ') >= 0
	for word := range bytes.SplitSeq(user, space) {
		if several && string(word) == "-" || c.hasAddress(word) {
			return true
		}
	}
	return false
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
// Without brackets, the last group of an IPv6 address is a port only if it cannot be of the
// address.
func withoutPort(addr []byte) []byte {
	if len(addr) > 0 && addr[0] == '[' {
		if i := bytes.IndexByte(addr, ']'); i > 0 {
			return addr[1:i]
		}
		return addr
	}
	i := bytes.LastIndexByte(addr, ':')
	if i >= 0 && (bytes.IndexByte(addr, ':') == i || hasExtraGroup(addr, addr[i+1:])) {
		return addr[:i]
	}
	return addr
}

// hasExtraGroup reports whether last, the last group of an IPv6 address, is one more than the
// address can have: it has five digits, it follows an IPv4 address, or it is the ninth, where two
// colons in a row stand for one group at least.
func hasExtraGroup(addr, last []byte) bool {
	if run(last) < len(last) || len(last) == 0 || len(last) > maxPortLen {
		return false
	}
	most := 7 // colons of eight groups
	if addr[0] == ':' {
		most = 8
	}
	return len(last) == maxPortLen || bytes.IndexByte(addr, '.') >= 0 ||
		bytes.Count(addr, colon) > most
}

var colon = []byte(":")

const maxPortLen = len("65535")

// cutPort removes the port from an address, or from the last one of a list, that one always
// follows: its last group, also where that could be of an IPv6 address.
func cutPort(addr []byte) []byte {
	i := bytes.LastIndexByte(addr, ':')
	if i < 0 || run(addr[i+1:]) < len(addr)-i-1 {
		return addr
	}
	return addr[:i]
}

// hasPort reports whether a port follows an address.
func hasPort(addr []byte) bool {
	return len(withoutPort(addr)) < len(addr) && addr[len(addr)-1] != ']'
}

// namesClient reports whether a list, as of X-Forwarded-For, has the address of a client. Clients
// send what they like before it. An address of a private network with a port is that of an
// upstream.
func namesClient(list string) bool {
	for one := range strings.SplitSeq(list, ",") {
		text := []byte(strings.TrimSpace(one))
		addr, err := netip.ParseAddr(string(withoutPort(text)))
		if err == nil && (!hasPort(text) || !clientaddr.IsPrivate(addr)) {
			return true
		}
	}
	return false
}
