package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/clientaddr"
	"github.com/weirgo/weir/internal/doors/urlpath"
)

// By says what callers are keyed by.
type By string

// The values of By.
const (
	ByIP     By = "ip"   // the address, or the prefix of an IPv6 address
	ByPath   By = "path" // without the query; all spellings of a path are one, as in weir proxy
	ByUser   By = "user"
	ByAgent  By = "agent" // the user agent
	ByIPPath By = "ip+path"
)

// ParseBy parses a By.
func ParseBy(s string) (By, error) {
	all := []string{string(ByIP), string(ByPath), string(ByUser), string(ByAgent), string(ByIPPath)}
	if !slices.Contains(all, s) {
		return "", fmt.Errorf("callers can be keyed by %s, not by %q", strings.Join(all, ", "), s)
	}
	return By(s), nil
}

// keyer returns the keys of requests. It is not safe for concurrent use.
type keyer struct {
	by     By
	ip     httplimit.IP
	trusts bool // some proxies
	peer   http.Request
	raw    string // the last address and X-Forwarded-For whose key was made
	list   string
	key    string // their key: a client often sends several requests in a row
}

func newKeyer(cfg *Config) *keyer {
	ip := httplimit.ClientIP(cfg.Trust) // as the middleware
	if cfg.IPv6Bits > 0 {
		ip = ip.IPv6Bits(cfg.IPv6Bits)
	}
	return &keyer{by: cfg.By, ip: ip, trusts: len(cfg.Trust) > 0,
		peer: http.Request{Header: make(http.Header)}}
}

// append appends the key of a request. It appends nothing if the request has none: no user is
// logged in, or there is no path.
func (k *keyer) append(dst []byte, e *accesslog.Entry) []byte {
	from := len(dst)
	switch {
	case k.by == ByIP:
		dst = k.appendAddr(dst, e)
	case k.by == ByPath && len(e.Path) > 0:
		dst = urlpath.AppendCanonical(dst, e.Path)
	case k.by == ByUser:
		dst = append(dst, e.User...)
	case k.by == ByAgent:
		_, agent := e.Headers()
		dst = append(dst, agent...)
	case k.by == ByIPPath && len(e.Path) > 0:
		dst = k.appendAddr(dst, e)
		if len(dst) > from {
			// an address has no space, so different pairs have different keys
			dst = urlpath.AppendCanonical(append(dst, ' '), e.Path)
		}
	}
	if len(dst)-from > maxName {
		dst = append(dst[:from], shorten(dst[from:])...)
	}
	return dst
}

// appendAddr appends the key that httplimit has for the client of a request. Servers that look up
// names log a name instead of the peer's address; the name is the key. It appends nothing if a
// trusted proxy forwarded for something that is no address, which the middleware refuses.
func (k *keyer) appendAddr(dst []byte, e *accesslog.Entry) []byte {
	if len(e.IP) == 0 || e.IPv4 && !k.trusts {
		return append(dst, e.IP...)
	}
	list := ""
	if k.trusts {
		list, _ = e.Forwarded()
	}
	if string(e.IP) != k.raw || list != k.list {
		k.raw, k.list = string(e.IP), list
		var err error
		k.key, err = k.ip.Extract(forward(&k.peer, k.raw, list))
		if err != nil {
			k.key = ""
			if _, err := netip.ParseAddr(k.raw); err != nil {
				k.key = strings.ToLower(k.raw)
			}
		}
	}
	return append(dst, k.key...)
}

// forward sets the peer and the X-Forwarded-For of r.
func forward(r *http.Request, peer, list string) *http.Request {
	r.RemoteAddr = peer
	r.Header.Del("X-Forwarded-For")
	if list != "" {
		r.Header.Set("X-Forwarded-For", list)
	}
	return r
}

// byAddress reports whether keys are of addresses.
func (k *keyer) byAddress() bool { return k.by == ByIP || k.by == ByIPPath }

// hidesClient reports whether the peer of a request is trusted, and the log has no client's address
// that it forwarded.
func (k *keyer) hidesClient(e *accesslog.Entry) bool {
	if _, logged := e.Forwarded(); logged || !k.trusts {
		return false
	}
	addr, err := k.ip.Addr(forward(&k.peer, string(e.IP), "192.0.2.1"))
	return err == nil && addr.String() == "192.0.2.1" && string(e.IP) != "192.0.2.1"
}

// callers numbers callers in order of appearance.
type callers struct {
	numbers  map[string]uint32
	names    []string
	requests []uint64 // by caller
}

func newCallers() *callers { return &callers{numbers: make(map[string]uint32)} }

// maxCallers leaves room for marks in a code.
const maxCallers = math.MaxUint32 >> markBits

// number returns the number of the caller with a key. It copies the key of a new caller.
func (c *callers) number(key []byte) uint32 {
	n, ok := c.numbers[string(key)]
	if !ok {
		n = uint32(len(c.names))
		name := string(key)
		c.numbers[name] = n
		c.names, c.requests = append(c.names, name), append(c.requests, 0)
	}
	return n
}

// withoutAddress returns the number of callers whose address is none.
func (c *callers) withoutAddress() (n int) {
	for _, name := range c.names {
		addr, _, _ := strings.Cut(name, " ") // of ip+path
		addr, _, _ = strings.Cut(addr, "/")  // of a prefix
		if _, err := netip.ParseAddr(addr); err != nil {
			n++
		}
	}
	return n
}

// maxName is the longest key that weir accepts. Paths can be longer.
const maxName = 1024

// shorten replaces the end of a key that is too long by a digest of the whole key, so that
// different keys stay different.
func shorten(key []byte) []byte {
	sum := sha256.Sum256(key)
	digest := "…sha256:" + hex.EncodeToString(sum[:])
	return append(append(make([]byte, 0, maxName), key[:maxName-len(digest)]...), digest...)
}

// UTF8 returns s with \xHH for each byte that is not of UTF-8, so that different texts stay
// different in the JSON report.
func UTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], string(r)) {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isOther reports whether an address may be that of a client, and another one than the caller's,
// not the same without its last bits, as some logs have it for privacy. A private address is not
// that of the client if the caller's is public.
func (k *keyer) isOther(a accesslog.Address, caller string) bool {
	if !a.IsValid() || k.keyOf(a.Addr) == caller {
		return false
	}
	addr, err := netip.ParseAddr(addressOf(caller))
	if err != nil {
		return true
	}
	if clientaddr.IsPrivate(a.Addr) {
		return isPrivate(caller)
	}
	return !isMasked(addr, a.Addr) && !isMasked(a.Addr, addr)
}

// keyOf returns the key of a caller with an address.
func (k *keyer) keyOf(addr netip.Addr) string {
	key, err := k.ip.Extract(forward(&k.peer, addr.String(), ""))
	if err != nil {
		return addr.String()
	}
	return key
}
