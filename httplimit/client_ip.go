package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/doors/clientaddr"
	"github.com/weirgo/weir/internal/doors/structuredfield"
)

// defaultIPv6Bits is the length of the prefix that IPv6 clients are keyed by. A client commonly has
// at least a /64, with 2^64 addresses to rotate through; some have a /56 or a /48.
const defaultIPv6Bits = 64

// IP is the extractor that keys by the client's address. [RemoteAddr] and [ClientIP] make one, its
// methods adjust it; the zero value is RemoteAddr.
//
// Addresses are normalized first: an IPv4-mapped address (::ffff:192.0.2.1) becomes an IPv4 address
// and zones are dropped, so that no notation gives a client a second key. An IPv4 client is keyed
// by its address ("192.0.2.1"), an IPv6 client by its /64 ("2001:db8::/64"). Anything else is an
// error, never a key.
type IP struct {
	trusted   []netip.Prefix // unmapped and masked
	forwarded bool           // read Forwarded, not X-Forwarded-For
	bits      uint8          // of IPv6 addresses; 0: defaultIPv6Bits
	bits4     uint8          // of IPv4 addresses; 0: all 32
}

// RemoteAddr returns the extractor that keys by the address of the TCP peer.
//
// The extractor reads no header, so a client cannot choose its key. Use it for servers that clients
// connect to directly. Behind a proxy all clients have the proxy's address and share one budget:
// use [ClientIP].
func RemoteAddr() IP { return IP{} }

// ClientIP returns the extractor that keys by the client's address as the trusted proxies report
// it.
//
// The extractor trusts only the TCP peers in trusted. Any other peer is the client, and no header
// of its request is read. If the peer is trusted, all lines of X-Forwarded-For are read as one list
// from right to left, and the first address that is not in trusted is the client, which may have
// written the entries further left. An entry that is no address is an error, since the entries to
// its left cannot be trusted. If every hop is trusted, the leftmost is the client: the request is a
// trusted machine's own.
//
// List only your proxies, as narrowly as you can: a peer in trusted can choose its key, and
// 0.0.0.0/0 trusts every client. Each proxy must append the address of its peer to the header
// (nginx: $proxy_add_x_forwarded_for) or overwrite it. Without a prefix ClientIP is [RemoteAddr].
//
// ClientIP panics if a prefix is the zero Prefix.
func ClientIP(trusted []netip.Prefix) IP {
	prefixes := make([]netip.Prefix, len(trusted))
	for i, p := range trusted {
		if !p.IsValid() {
			panic(fmt.Sprintf("httplimit: ClientIP: prefix %d is not valid", i))
		}
		prefixes[i] = clientaddr.PlainPrefix(p).Masked()
	}
	return IP{trusted: prefixes}
}

// IPv6Bits returns an extractor like ip that keys IPv6 clients by this many leading bits, 1 to 128;
// 64 is the default. With fewer bits neighbors share a budget, with more one client has several.
// IPv6Bits panics on any other number. [IP.IPv4Bits] does so for IPv4.
func (ip IP) IPv6Bits(bits int) IP {
	if bits < 1 || bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6Bits(%d) is not in 1 to 128", bits))
	}
	ip.bits = uint8(bits)
	return ip
}

// IPv4Bits returns an extractor like ip that keys IPv4 clients by this many leading bits, 1 to 32;
// 32 is the default. With fewer, neighbors share a budget. It panics on any other number.
func (ip IP) IPv4Bits(bits int) IP {
	if bits < 1 || bits > 32 {
		panic(fmt.Sprintf("httplimit: IPv4Bits(%d) is not in 1 to 32", bits))
	}
	ip.bits4 = uint8(bits % 32)
	return ip
}

// Forwarded returns an extractor like ip that reads the Forwarded header of RFC 7239 in place of
// X-Forwarded-For. Use it only if the trusted proxies write that header: a proxy that does not
// passes on the client's own, which is why the two are never combined. An element with no for
// parameter, with "unknown", or with an obfuscated name is no address. Nor is an IPv6 address
// without quotes and brackets, as some load balancers of AWS write it: its last group may be a
// port.
func (ip IP) Forwarded() IP {
	ip.forwarded = true
	return ip
}

// peerError is the error of a request whose peer has no IP address, as on a Unix socket. No client
// can cause it.
type peerError string

func (e peerError) Error() string {
	return fmt.Sprintf("%v: the peer's address %.100q is no IP address", ErrKey, string(e))
}

func (peerError) Unwrap() error { return ErrKey }

func (ip IP) isZero() bool {
	return len(ip.trusted) == 0 && !ip.forwarded && ip.bits == 0 && ip.bits4 == 0
}

// Addr returns the client's address, whole: unmapped and without a zone, but not cut to a prefix.
// Errors wrap [ErrKey].
func (ip IP) Addr(r *http.Request) (netip.Addr, error) {
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil || !ip.trusts(peer) {
		return peer, err
	}
	if ip.forwarded {
		return ip.walkForwarded(peer, r.Header["Forwarded"])
	}
	return ip.walkXFF(peer, r.Header["X-Forwarded-For"])
}

// Extract returns the key of the client's address.
func (ip IP) Extract(r *http.Request) (string, error) { return extract(ip, r) }

func (ip IP) appendKey(dst []byte, r *http.Request) ([]byte, error) {
	if len(ip.trusted) == 0 && ip.bits4 == 0 {
		if host := plainIPv4(r.RemoteAddr); host != "" {
			return append(dst, host...), nil
		}
	}
	addr, err := ip.Addr(r)
	if err != nil {
		return dst, err
	}
	return ip.appendAddr(dst, addr), nil
}

func (ip IP) appendAddr(dst []byte, addr netip.Addr) []byte {
	p := ip.prefix(addr)
	if p.IsSingleIP() {
		return p.Addr().AppendTo(dst)
	}
	return p.AppendTo(dst)
}

// prefix returns the addresses that have the key of addr.
func (ip IP) prefix(addr netip.Addr) netip.Prefix {
	if v4, ok := fromNAT64(addr); ok {
		addr = v4
	}
	bits := cmp.Or(int(ip.bits), defaultIPv6Bits)
	if addr.Is4() {
		bits = cmp.Or(int(ip.bits4), 32)
	}
	p, _ := addr.Prefix(bits) // bits is valid
	return p
}

func (ip IP) trusts(addr netip.Addr) bool {
	for _, p := range ip.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// walkXFF returns the rightmost address in the chain that is not trusted, or else the leftmost; the
// peer, which is trusted, stands right of the whole chain.
func (ip IP) walkXFF(peer netip.Addr, lines []string) (netip.Addr, error) {
	client := peer
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			var entry string
			entry, line, more = cutLast(line)
			if entry == "" {
				continue // an empty list element is valid
			}
			addr, err := parseHop(entry)
			if err != nil || !ip.trusts(addr) {
				return addr, err
			}
			client = addr
		}
	}
	return client, nil
}

// walkForwarded is walkXFF for the Forwarded header.
//
// A line is read from its start, since commas inside quotes do not separate elements; a quote that
// a client opened and a proxy's element closed makes the line malformed, and the request an error.
// The last line is read first, and only the lines needed, so that a client's malformed line fails
// only its own requests.
func (ip IP) walkForwarded(peer netip.Addr, lines []string) (netip.Addr, error) {
	client := peer
	for _, line := range slices.Backward(lines) {
		hops, err := forwardedFor(line)
		if err != nil {
			return netip.Addr{}, err
		}
		for _, hop := range slices.Backward(hops) {
			addr, err := parseNode(hop)
			if err != nil || !ip.trusts(addr) {
				return addr, err
			}
			client = addr
		}
	}
	return client, nil
}

// ServeHTTP answers with the addresses that ip sees: the TCP peer, the fields that name further
// addresses, and the key. Serve it behind a new load balancer, compare the key with your own
// address, and remove the handler again, since the answer shows the addresses of your proxies:
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

// cutLast cuts the last element off a comma-separated list.
func cutLast(list string) (last, rest string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return strings.Trim(list, structuredfield.Blanks), "", false
	}
	return strings.Trim(list[i+1:], structuredfield.Blanks), list[:i], true
}

// parsePeer parses an address as net/http writes it in RemoteAddr, host:port, or without the port,
// as some servers and tests leave it.
func parsePeer(s string) (netip.Addr, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return clientaddr.Plain(ap.Addr()), nil
	}
	addr, err := parseHop(s)
	if err != nil {
		return netip.Addr{}, peerError(s)
	}
	return addr, nil
}

// plainIPv4 returns the host of host:port if it is an IPv4 address in the notation that netip
// writes, which is its own key: parsing and formatting it would be most of the cost of an
// extractor. Otherwise it returns "".
func plainIPv4(hostport string) string {
	octet, digits, dots := 0, 0, 0
	for i := range len(hostport) {
		switch c := hostport[i]; {
		case '0' <= c && c <= '9':
			if digits > 0 && octet == 0 {
				return "" // a leading zero
			}
			octet = octet*10 + int(c-'0')
			digits++
			if octet > 255 {
				return ""
			}
		case c == '.' && digits > 0 && dots < 3:
			octet, digits, dots = 0, 0, dots+1
		case c == ':' && digits > 0 && dots == 3:
			return hostport[:i]
		default:
			return ""
		}
	}
	return ""
}

// parseHop parses one hop of a chain: an address, with or without a port, in brackets or not. An
// IPv6 address without brackets has a port if it would be none with it, as in
// ::ffff:192.0.2.1:49152 or after eight groups.
func parseHop(s string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return clientaddr.Plain(addr), nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return clientaddr.Plain(ap.Addr()), nil
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if ok {
			if addr, err := netip.ParseAddr(inner); err == nil && addr.Is6() {
				return clientaddr.Plain(addr), nil
			}
		}
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		_, badPort := strconv.ParseUint(s[i+1:], 10, 16)
		if addr, err := netip.ParseAddr(s[:i]); err == nil && badPort == nil {
			return clientaddr.Plain(addr), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: forwarded for %.100q, which is no IP address", ErrKey, s)
}

// nat64 is the well-known prefix of RFC 6052, followed by the client's IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// fromNAT64 returns the IPv4 address that addr embeds. Without it, all IPv4 clients behind a
// translator would share the /64 of its prefix.
func fromNAT64(addr netip.Addr) (v4 netip.Addr, ok bool) {
	if !nat64.Contains(addr) {
		return netip.Addr{}, false
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}
