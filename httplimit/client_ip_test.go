package httplimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/slow"
)

var proxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("192.0.2.10/32"),
	netip.MustParsePrefix("2001:db8:feed::/48"),
}

// from returns a request from the peer with the given header lines, "Name: value".
func from(peer string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestClientIP(t *testing.T) {
	for _, row := range []struct {
		name string
		r    *http.Request
		want string // "" means an error
	}{
		{"a direct client has its peer address", from("203.0.113.7:5000"), "203.0.113.7"},
		{"a direct client cannot name another address",
			from("203.0.113.7:5000", "X-Forwarded-For: 198.51.100.1"), "203.0.113.7"},
		{"a direct client cannot name a proxy",
			from("203.0.113.7:5000", "X-Forwarded-For: 10.0.0.1"), "203.0.113.7"},
		{"no other header is read",
			from("10.0.0.1:5000", "X-Real-IP: 198.51.100.9", "True-Client-IP: 198.51.100.9",
				"CF-Connecting-IP: 198.51.100.9", "Forwarded: for=198.51.100.9",
				"X-Forwarded-For: 203.0.113.7"),
			"203.0.113.7"},
		{"behind a proxy the client is the address it appended",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		{"entries left of the client are ignored",
			from("10.0.0.1:5000", "X-Forwarded-For: 198.51.100.1, 203.0.113.7"), "203.0.113.7"},
		{"two trusted proxies are skipped",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, 192.0.2.10"), "203.0.113.7"},
		{"a client that names a proxy is still identified",
			from("10.0.0.1:5000", "X-Forwarded-For: 10.9.9.9, 203.0.113.7"), "203.0.113.7"},
		{"several lines are one chain, the last line last", from("10.0.0.1:5000",
			"X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		{"a proxy may stand on the last line, the client on the one before", from("10.0.0.1:5000",
			"X-Forwarded-For: 198.51.100.1, 203.0.113.7", "X-Forwarded-For: 10.0.0.3"), "203.0.113.7"},
		{"empty elements are ignored",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, ,\t, 10.0.0.3,"), "203.0.113.7"},
		{"without a header the proxy is the client", from("10.0.0.1:5000"), "10.0.0.1"},
		{"an empty header likewise", from("10.0.0.1:5000", "X-Forwarded-For: "), "10.0.0.1"},
		{"if every hop is trusted, the farthest is the client",
			from("10.0.0.1:5000", "X-Forwarded-For: 10.0.0.3, 10.0.0.2"), "10.0.0.3"},

		{"an invalid entry right of the client is an error",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, unknown"), ""},
		{"an invalid entry left of it is not",
			from("10.0.0.1:5000", "X-Forwarded-For: unknown, 203.0.113.7"), "203.0.113.7"},
		{"an invalid header is an error, not the proxy's key",
			from("10.0.0.1:5000", "X-Forwarded-For: <script>"), ""},
		{"a name is no address", from("10.0.0.1:5000", "X-Forwarded-For: localhost"), ""},
		{"a number is no address", from("10.0.0.1:5000", "X-Forwarded-For: 3405803783"), ""},
		{"an octet with a leading zero is none", from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.007"),
			""},
		{"an octet too many is none", from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7.1"), ""},
		{"a Unicode space is no blank", from("10.0.0.1:5000", "X-Forwarded-For: \u00a0203.0.113.7"), ""},

		{"a port is tolerated", from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7:49152"),
			"203.0.113.7"},
		{"brackets and a port",
			from("10.0.0.1:5000", "X-Forwarded-For: [2001:db8::1]:49152"), "2001:db8::/64"},
		{"brackets alone", from("10.0.0.1:5000", "X-Forwarded-For: [2001:db8::1]"), "2001:db8::/64"},
		{"a port after a mapped address",
			from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:203.0.113.7:12345"), "203.0.113.7"},
		{"the same of few digits",
			from("10.0.0.1:5000", "X-Forwarded-For: ::FFFF:203.0.113.7:80"), "203.0.113.7"},
		{"a port after eight groups",
			from("10.0.0.1:5000", "X-Forwarded-For: 2001:db8:1:2:3:4:5:6:443"), "2001:db8:1:2::/64"},
		{"a port after groups that the address ends with",
			from("10.0.0.1:5000", "X-Forwarded-For: 2001:db8:1:2:::443"), "2001:db8:1:2::/64"},
		{"a port that is no group",
			from("10.0.0.1:5000", "X-Forwarded-For: 2001:db8:1:2::5:40001"), "2001:db8:1:2::/64"},
		{"of trusted proxies too", from("10.0.0.1:5000",
			"X-Forwarded-For: 203.0.113.7, ::ffff:10.0.0.3:12345, 2001:db8:feed:0:0:0:0:5:443"),
			"203.0.113.7"},
		{"as the peer", from("::ffff:203.0.113.7:12345"), "203.0.113.7"},
		{"nine groups and a port", from("10.0.0.1:5000", "X-Forwarded-For: 1:2:3:4:5:6:7:8:9:443"), ""},
		{"a port over 65535", from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:203.0.113.7:70000"), ""},
		{"a port with a sign", from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:203.0.113.7:+80"), ""},
		{"no port after the colon", from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:203.0.113.7:"), ""},
		{"two ports", from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:203.0.113.7:80:80"), ""},
		{"half a bracket", from("10.0.0.1:5000", "X-Forwarded-For: [2001:db8::1"), ""},
		{"brackets around IPv4", from("10.0.0.1:5000", "X-Forwarded-For: [203.0.113.7]"), ""},

		{"an IPv4-mapped peer is the IPv4 peer", from("[::ffff:203.0.113.7]:5000"), "203.0.113.7"},
		{"also in hexadecimal", from("[::ffff:cb00:7107]:5000"), "203.0.113.7"},
		{"also written out", from("[0:0:0:0:0:ffff:203.0.113.7]:5000"), "203.0.113.7"},
		{"an IPv4-mapped proxy is trusted",
			from("[::ffff:10.0.0.1]:5000", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		{"an IPv4-mapped proxy in the chain is passed over",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, ::ffff:10.0.0.3"), "203.0.113.7"},
		{"a zoned one too, and IPv4-mapped",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, ::ffff:10.0.0.3%eth0"), "203.0.113.7"},
		{"an IPv4-mapped client is the IPv4 client",
			from("10.0.0.1:5000", "X-Forwarded-For: ::FFFF:203.0.113.7"), "203.0.113.7"},
		{"two IPv4-mapped clients are two",
			from("10.0.0.1:5000", "X-Forwarded-For: ::ffff:1.2.3.4"), "1.2.3.4"},
		{"an embedded IPv4 tail does not escape the prefix",
			from("10.0.0.1:5000", "X-Forwarded-For: 2001:db8::1.2.3.4"), "2001:db8::/64"},

		{"an IPv6 client is his /64", from("[2001:db8:1:2:aaaa:bbbb:cccc:dddd]:5000"),
			"2001:db8:1:2::/64"},
		{"and stays it, whatever address he takes in it",
			from("[2001:db8:1:2::1]:5000"), "2001:db8:1:2::/64"},
		{"in capitals too", from("[2001:DB8:1:2::1]:5000"), "2001:db8:1:2::/64"},
		{"a zone is dropped",
			from("10.0.0.1:5000", "X-Forwarded-For: 2001:db8:1:2::1%eth0"), "2001:db8:1:2::/64"},
		{"a zoned peer has no key of its own", from("[fe80::1%eth0]:5000"), "fe80::/64"},
		{"an IPv6 proxy is trusted",
			from("[2001:db8:feed::5]:5000", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		{"with a zone as well",
			from("[2001:db8:feed::5%eth1]:5000", "X-Forwarded-For: 203.0.113.7"), "203.0.113.7"},
		{"an IPv6 proxy in the chain is passed over, with its zone",
			from("10.0.0.1:5000", "X-Forwarded-For: 203.0.113.7, 2001:db8:feed::6%x"), "203.0.113.7"},

		{"a peer without a port", from("203.0.113.7"), "203.0.113.7"},
		{"a Unix socket has no address", from("@"), ""},
		{"nor has nobody", from(""), ""},
		{"nor has a name", from("localhost:80"), ""},
	} {
		t.Run(row.name, func(t *testing.T) { wantKey(t, httplimit.ClientIP(proxies), row.r, row.want) })
	}
}

func TestRemoteAddrReadsNoHeader(t *testing.T) {
	r := from("[2001:db8::1]:5000", "X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.1")
	for _, e := range []httplimit.Extractor{
		httplimit.RemoteAddr(), httplimit.ClientIP(nil), httplimit.IP{},
		httplimit.RemoteAddr().Forwarded(),
	} {
		wantKey(t, e, r, "2001:db8::/64")
	}
	for _, peer := range []string{"1.2.3.4:80", "255.255.255.255:1", "0.0.0.0:0", "[::]:1",
		"[::1]:1"} {
		key, err := httplimit.RemoteAddr().Extract(from(peer))
		require.NoError(t, err)
		assert.Equal(t, strings.ReplaceAll(netip.MustParseAddrPort(peer).Addr().String(), "::1", "::"),
			strings.TrimSuffix(key, "/64"))
	}
	for _, peer := range []string{"1.2.3:80", "1.2.3.256:80", "1.2.3.4.5:80", "01.2.3.4:80",
		"1..3.4:80",
		".1.2.3:80", "1.2.3.4 :80", "300.2.3.4:80"} {
		wantKey(t, httplimit.RemoteAddr(), from(peer), "")
	}
}

func TestClientIPByForwarded(t *testing.T) {
	const peer = "10.0.0.1:5000"
	for _, row := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one hop", []string{"for=203.0.113.7"}, "203.0.113.7"},
		{"the name in any case, among other parameters",
			[]string{`proto=https; FOR=203.0.113.7 ;by=10.0.0.1;host="a,b;c=d"`}, "203.0.113.7"},
		{"right to left past the proxies",
			[]string{"for=198.51.100.1, for=203.0.113.7, for=10.0.0.2"}, "203.0.113.7"},
		{"over several lines",
			[]string{"for=198.51.100.1", "for=203.0.113.7", "for=10.0.0.2"}, "203.0.113.7"},
		{"IPv6 in quotes and brackets", []string{`for="[2001:db8:cafe::17]"`}, "2001:db8:cafe::/64"},
		{"with a port", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{"IPv4 with a port", []string{`for="203.0.113.7:4711"`}, "203.0.113.7"},
		{"an obfuscated port", []string{`for="[2001:db8:cafe::17]:_obf"`}, "2001:db8:cafe::/64"},
		{"an obfuscated port of IPv4", []string{`for="203.0.113.7:_p-1.x_"`}, "203.0.113.7"},
		{"an empty pair at the end", []string{"for=203.0.113.7;"}, "203.0.113.7"},
		{"empty pairs anywhere", []string{"for=198.51.100.1; ,;;for=203.0.113.7; ;proto=http;;"},
			"203.0.113.7"},
		{"an escape in the quotes", []string{`for="203.0.113\.7"`}, "203.0.113.7"},
		{"empty elements", []string{", ,for=203.0.113.7,,"}, "203.0.113.7"},
		{"the other header is not read", nil, "10.0.0.1"},

		{"unknown is no address", []string{"for=unknown"}, ""},
		{"nor is an obfuscated name", []string{"for=_SEVKISEK"}, ""},
		{"unknown is reached from the right only", []string{"for=unknown, for=203.0.113.7"},
			"203.0.113.7"},
		{"an element without for hides who it was", []string{"for=203.0.113.7, proto=http"}, ""},
		{"two for in one element", []string{"for=203.0.113.7;for=198.51.100.1"}, ""},
		{"IPv6 without brackets: is the last group a port?", []string{`for="2001:db8:cafe::17"`}, ""},
		{"an obfuscated port without a name", []string{`for="203.0.113.7:_"`}, ""},
		{"an obfuscated port of other bytes", []string{`for="203.0.113.7:_a b"`}, ""},
		{"a port and an obfuscated one", []string{`for="203.0.113.7:80:_a"`}, ""},
		{"the same after brackets", []string{`for="[2001:db8::1]:80:_a"`}, ""},
		{"an obfuscated port without brackets", []string{`for="2001:db8::1:_a"`}, ""},
		{"empty pairs alone", []string{"for=203.0.113.7, ;;"}, ""},
		{"a pair after nothing but a blank", []string{"for=203.0.113.7 proto=http"}, ""},
		{"IPv6 without quotes", []string{"for=[2001:db8:cafe::17]"}, ""},
		{"no value", []string{"for="}, ""},
		{"an empty value", []string{`for=""`}, ""},
		{"no name", []string{"=203.0.113.7"}, ""},
		{"no pair", []string{"203.0.113.7"}, ""},
		{"a quote that does not end", []string{`for="203.0.113.7`}, ""},
		{"something after the quote", []string{`for="203.0.113.7"x`}, ""},

		// The client's part precedes the one that the proxy appended.
		{"a quote opened to swallow the proxy's element",
			[]string{`for=198.51.100.1;x=", for=203.0.113.7`}, ""},
		{"the same against a proxy that quotes", []string{`for=198.51.100.1;x=", for="203.0.113.7"`}, ""},
		{"the same with an escape", []string{`for=198.51.100.1;x="\, for="203.0.113.7";by="10.0.0.1"`},
			""},
		{"a malformed line of the client's own is not reached",
			[]string{`for="`, "for=203.0.113.7"}, "203.0.113.7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := from(peer, "X-Forwarded-For: 198.51.100.77")
			r.Header["Forwarded"] = row.lines
			wantKey(t, httplimit.ClientIP(proxies).Forwarded(), r, row.want)
			r.RemoteAddr = "198.51.100.9:5000"
			wantKey(t, httplimit.ClientIP(proxies).Forwarded(), r, "198.51.100.9")
		})
	}
}

// An address in the notation of some load balancers is refused, and the error says which field to
// read.
func TestTheErrorOfAnAddressWithoutBracketsSaysWhatToDo(t *testing.T) {
	for _, line := range []string{"for=2001:db8::17", "for=2001:db8:1:2:3:4:5:6;proto=https",
		"by=::1;for=::ffff:203.0.113.7", "for=[2001:db8::17]", "for=203.0.113.7:443", `for="2001:db8::17"`,
		`for="2001:db8::17:443"`} {
		r := from("10.0.0.1:5000", "Forwarded: "+line)
		_, err := httplimit.ClientIP(proxies).Forwarded().Extract(r)
		require.ErrorIs(t, err, httplimit.ErrKey, line)
		assert.ErrorContains(t, err, "quotes and brackets", line)
		assert.ErrorContains(t, err, "read that: ClientIP without Forwarded", line)
	}
}

func TestIPv6Bits(t *testing.T) {
	r := from("[2001:db8:1:2345:6789::1]:5000")
	for bits, want := range map[int]string{1: "::/1", 32: "2001:db8::/32", 56: "2001:db8:1:2300::/56",
		64:  "2001:db8:1:2345::/64",
		127: "2001:db8:1:2345:6789::/127", 128: "2001:db8:1:2345:6789::1"} {
		wantKey(t, httplimit.RemoteAddr().IPv6Bits(bits), r, want)
		wantKey(t, httplimit.RemoteAddr().IPv6Bits(bits), from("203.0.113.7:1"), "203.0.113.7")
	}
	for _, bits := range []int{0, -1, 129} {
		assert.Panics(t, func() { httplimit.RemoteAddr().IPv6Bits(bits) })
	}
	ip := httplimit.RemoteAddr()
	ip.IPv6Bits(32)
	wantKey(t, ip, r, "2001:db8:1:2345::/64") // IPv6Bits returns a copy
}

func TestClientIPTrustsMappedAndUnmaskedPrefixes(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("::ffff:10.1.2.3/104"),
		netip.PrefixFrom(netip.MustParseAddr("192.0.2.77"), 24)}
	for _, peer := range []string{"10.9.9.9:1", "[::ffff:10.9.9.9]:1", "192.0.2.5:1"} {
		wantKey(t, httplimit.ClientIP(trusted), from(peer, "X-Forwarded-For: 203.0.113.7"), "203.0.113.7")
	}
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0") // the caller may reuse its slice
	assert.Panics(t, func() { httplimit.ClientIP([]netip.Prefix{{}}) })
}

func TestAddrIsTheWholeAddress(t *testing.T) {
	addr, err := httplimit.ClientIP(proxies).Addr(from("10.0.0.1:1",
		"X-Forwarded-For: 2001:db8::7%eth0"))
	require.NoError(t, err)
	assert.Equal(t, netip.MustParseAddr("2001:db8::7"), addr)
	_, err = httplimit.RemoteAddr().Addr(from("@"))
	assert.ErrorIs(t, err, httplimit.ErrKey)
}

// A request from an untrusted peer gets the peer's key, whatever its headers are. A request through
// trusted proxies gets the address seen by the outermost of them. The generator knows it, as it
// simulates the proxies.
func TestSpoofedHeadersNeverChooseKey(t *testing.T) {
	requests := 1_000_000
	if slow.Race {
		requests /= 50 // one goroutine, twenty times slower
	}
	xff, fwd := httplimit.ClientIP(proxies), httplimit.ClientIP(proxies).Forwarded()
	rng := rand.New(rand.NewPCG(42, 1))
	r := from("")
	for range requests {
		want := generate(rng, r)
		e := xff
		if rng.IntN(2) == 0 {
			e = fwd
		}
		if got, err := e.Extract(r); err != nil || got != want {
			t.Fatalf("escaped: %q with %v is keyed %q, %v; want %q", r.RemoteAddr, r.Header, got, err, want)
		}
	}
}

// The negative control: an extractor that uses the leftmost entry is detected.
func TestSpoofedHeadersControlLeftmostEntry(t *testing.T) {
	leftmost := httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		if first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ","); first != "" {
			return strings.TrimSpace(first), nil
		}
		return httplimit.RemoteAddr().Extract(r)
	})
	rng := rand.New(rand.NewPCG(42, 1))
	r := from("")
	escaped := 0
	for range 1000 {
		if want := generate(rng, r); want != must(leftmost.Extract(r)) {
			escaped++
		}
	}
	assert.Greater(t, escaped, 300)
}

func must(key string, _ error) string { return key }

// generate turns r into a request from a client that sends forged headers through up to three
// proxies, and returns the client's true key.
func generate(rng *rand.Rand, r *http.Request) (want string) {
	client := netip.AddrFrom4([4]byte{203, 0, 113, byte(rng.IntN(256))})
	want = client.String()
	if rng.IntN(3) == 0 {
		b := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(rng.IntN(4)), 0, byte(rng.IntN(4)),
			8: byte(rng.Uint32()), 15: byte(rng.Uint32())}
		client = netip.AddrFrom16(b)
		want = netip.PrefixFrom(client, 64).Masked().String()
	}
	clear(r.Header)
	xff, fwd := forged(rng), forged(rng)
	for i, line := range fwd {
		fwd[i] = "for=" + strings.ReplaceAll(line, ", ", ", for=")
	}
	hop := client
	for range rng.IntN(4) { // each proxy appends its peer's address
		node := fmt.Sprintf(`for="%s"`, notation(rng, hop, true))
		xff, fwd = appendHop(rng, xff, notation(rng, hop, false)), append(fwd, node)
		hop = netip.AddrFrom4([4]byte{10, byte(rng.IntN(256)), 0, 1})
	}
	r.Header["X-Forwarded-For"], r.Header["Forwarded"] = xff, fwd
	r.Header["X-Real-Ip"] = []string{"198.51.100.1"}
	r.RemoteAddr = netip.AddrPortFrom(hop, uint16(1+rng.IntN(65535))).String()
	return want
}

// forged returns header lines that a client may send: addresses of others and of proxies, and
// invalid text.
func forged(rng *rand.Rand) (lines []string) {
	for range rng.IntN(3) {
		var entries []string
		for range 1 + rng.IntN(3) {
			switch rng.IntN(5) {
			case 0:
				entries = append(entries, "10.0.0.1")
			case 1:
				entries = append(entries, "unknown")
			case 2:
				entries = append(entries, "::ffff:10.0.0.9%25x")
			default:
				entries = append(entries, fmt.Sprintf("198.51.100.%d", rng.IntN(256)))
			}
		}
		lines = append(lines, strings.Join(entries, ", "))
	}
	return lines
}

// appendHop appends an address as proxies do, to the last line or as a new line.
func appendHop(rng *rand.Rand, lines []string, hop string) []string {
	if len(lines) > 0 && rng.IntN(2) == 0 {
		lines[len(lines)-1] += ", " + hop
		return lines
	}
	return append(lines, hop)
}

// notation formats addr in one of the ways that proxies use, with brackets if it is a Forwarded
// node.
func notation(rng *rand.Rand, addr netip.Addr, node bool) string {
	if addr.Is6() && node {
		return "[" + addr.String() + "]"
	}
	switch mapped := "::ffff:" + addr.String(); rng.IntN(4) {
	case 0:
		return netip.AddrPortFrom(addr, 49152).String()
	case 1:
		if addr.Is4() && !node {
			return mapped
		}
	case 2:
		if addr.Is4() && !node {
			return mapped + ":443"
		}
		if !node {
			return addr.StringExpanded() + ":443"
		}
	}
	return addr.String()
}

func FuzzClientIP(f *testing.F) {
	f.Add("10.0.0.1:5000", "203.0.113.7, 10.0.0.2", "for=203.0.113.7")
	f.Add("203.0.113.7:5000", "", `for="[2001:db8::1]:80";x=","`)
	f.Add("[::ffff:10.0.0.1%eth0]:1", "::ffff:1.2.3.4%2, [::1]:8", `FOR="\[::1\]"`)
	f.Fuzz(func(t *testing.T, peer, xff, forwarded string) {
		r := from(peer)
		r.Header["X-Forwarded-For"] = strings.Split(xff, "\n")
		r.Header["Forwarded"] = strings.Split(forwarded, "\n")
		direct, directErr := httplimit.RemoteAddr().Extract(r)
		for _, ip := range []httplimit.IP{
			httplimit.ClientIP(proxies), httplimit.ClientIP(proxies).Forwarded(),
		} {
			key, err := ip.Extract(r)
			if err != nil {
				require.ErrorIs(t, err, httplimit.ErrKey)
				require.Empty(t, key)
				continue
			}
			requireKeyOfAddress(t, key)
			if addr, err := httplimit.RemoteAddr().Addr(r); err == nil && !inProxies(addr) {
				require.NoError(t, directErr)
				require.Equal(t, direct, key, "an untrusted peer chose his key")
			}
		}
	})
}

func inProxies(addr netip.Addr) bool {
	for _, p := range proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// requireKeyOfAddress checks that key is an IPv4 address or an IPv6 /64 in canonical form.
func requireKeyOfAddress(t *testing.T, key string) {
	t.Helper()
	if addr, err := netip.ParseAddr(key); err == nil {
		require.True(t, addr.Is4(), key)
		require.Equal(t, addr.String(), key)
		return
	}
	p, err := netip.ParsePrefix(key)
	require.NoError(t, err)
	require.True(t, p.Addr().Is6() && !p.Addr().Is4In6(), key)
	require.Equal(t, 64, p.Bits())
	require.Equal(t, p.Masked().String(), key)
}

// Clients behind NAT64 get keys from their IPv4 addresses, not the /64 of the translator.
func TestNAT64ClientsHaveDistinctKeys(t *testing.T) {
	key := func(peer string) string {
		k, err := httplimit.RemoteAddr().Extract(from(peer))
		require.NoError(t, err)
		return k
	}
	assert.Equal(t, "192.0.2.1", key("[64:ff9b::192.0.2.1]:1"))
	assert.Equal(t, "192.0.2.2", key("[64:ff9b::c000:202]:1"))
	assert.Equal(t, "64:ff9b:1::/64", key("[64:ff9b:1::c000:202]:1"),
		"another prefix says nothing about the bits after it")

	// The deny list compares both forms of the address. A listed translator does not list all of IPv4.
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	for entry, want := range map[string]map[string]bool{
		"192.0.2.0/24": {"192.0.2.1": true, "64:ff9b::192.0.2.1": true,
			"64:ff9b::198.51.100.1": false},
		"64:ff9b::/96":          {"192.0.2.1": false, "64:ff9b::192.0.2.1": true},
		"64:ff9b::c000:200/120": {"192.0.2.1": false, "64:ff9b::192.0.2.1": true},
	} {
		e := httplimit.DenyEntry{Prefix: netip.MustParsePrefix(entry)}
		require.NoError(t, list.Add(e))
		for addr, listed := range want {
			_, ok := list.Lookup("k", netip.MustParseAddr(addr))
			assert.Equal(t, listed, ok, "%s in %s", addr, entry)
		}
		list.Remove(e)
	}

	// Only the address itself is ever trusted.
	behind := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	k, err := behind.Extract(from("[64:ff9b::10.0.0.1]:1", "X-Forwarded-For: 198.51.100.1"))
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1", k)
}

func TestIPv4Bits(t *testing.T) {
	ip := httplimit.RemoteAddr().IPv4Bits(24)
	for peer, want := range map[string]string{
		"203.0.113.7:1": "203.0.113.0/24", "[::ffff:203.0.113.8]:1": "203.0.113.0/24",
		"[64:ff9b::203.0.113.9]:1": "203.0.113.0/24", "[2001:db8::1]:1": "2001:db8::/64",
	} {
		key, err := ip.Extract(from(peer))
		assert.NoError(t, err)
		assert.Equal(t, want, key, peer)
	}
	key, err := ip.IPv4Bits(32).Extract(from("203.0.113.7:1"))
	assert.NoError(t, err)
	assert.Equal(t, "203.0.113.7", key)
	for _, bits := range []int{-1, 0, 33} {
		assert.Panics(t, func() { ip.IPv4Bits(bits) })
	}
}
