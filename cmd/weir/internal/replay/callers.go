package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/httplimit"
)

// By says what callers are keyed by.
type By string

// The values of By.
const (
	ByIP     By = "ip"   // the address, or the prefix of an IPv6 address
	ByPath   By = "path" // the path without the query
	ByUser   By = "user"
	ByIPPath By = "ip+path"
)

// ParseBy parses a By.
func ParseBy(s string) (By, error) {
	switch by := By(s); by {
	case ByIP, ByPath, ByUser, ByIPPath:
		return by, nil
	}
	return "", fmt.Errorf("callers can be keyed by %s, not by %q", strings.Join([]string{
		string(ByIP), string(ByPath), string(ByUser), string(ByIPPath)}, ", "), s)
}

// keyer returns the keys of requests. It is not safe for concurrent use.
type keyer struct {
	by   By
	ip   httplimit.IP
	peer http.Request
	raw  string // the last address whose key was made
	key  string // its key: a client often sends several requests in a row
}

func newKeyer(by By, ipv6Bits int) *keyer {
	ip := httplimit.RemoteAddr()
	if ipv6Bits > 0 {
		ip = ip.IPv6Bits(ipv6Bits)
	}
	return &keyer{by: by, ip: ip}
}

// append appends the key of a request. It appends nothing if the request has none: no user is
// logged in, or there is no path.
func (k *keyer) append(dst []byte, e *accesslog.Entry) []byte {
	from := len(dst)
	switch {
	case k.by == ByIP:
		dst = k.appendAddr(dst, e.IP)
	case k.by == ByPath:
		dst = append(dst, e.Path...)
	case k.by == ByUser:
		dst = append(dst, e.User...)
	case len(e.Path) > 0 && len(e.IP) > 0:
		// an address has no space, so different pairs have different keys
		dst = append(k.appendAddr(dst, e.IP), ' ')
		dst = append(dst, e.Path...)
	}
	if len(dst)-from > maxName {
		dst = append(dst[:from], shorten(dst[from:])...)
	}
	return dst
}

// appendAddr appends the key that httplimit has for an address. Servers that look up names log a
// name instead of an address; the name is the key.
func (k *keyer) appendAddr(dst, addr []byte) []byte {
	if len(addr) == 0 || plainIPv4(addr) {
		return append(dst, addr...)
	}
	if string(addr) != k.raw {
		k.raw = string(addr)
		k.peer.RemoteAddr = k.raw
		var err error
		if k.key, err = k.ip.Extract(&k.peer); err != nil {
			k.key = strings.ToLower(k.raw)
		}
	}
	return append(dst, k.key...)
}

// plainIPv4 reports whether addr is an IPv4 address as net/netip formats it, which is then its own
// key. Nearly all addresses are; to parse them would take a fifth of the time that a line takes.
func plainIPv4(addr []byte) bool {
	octet, digits, dots := 0, 0, 0
	for _, c := range addr {
		switch {
		case '0' <= c && c <= '9':
			if digits > 0 && octet == 0 {
				return false // a leading zero
			}
			octet = octet*10 + int(c-'0')
			if digits++; octet > 255 {
				return false
			}
		case c == '.' && digits > 0:
			octet, digits = 0, 0
			dots++
		default:
			return false
		}
	}
	return dots == 3 && digits > 0
}

// callers numbers callers in order of appearance. It is a hash table of its own because the parsers
// compute the hashes, and because with a million callers the time of a look-up is that of its cache
// misses: here two, in a map of strings five.
type callers struct {
	seed  maphash.Seed
	slots []slot // the length is a power of two
	all   []caller
	names []string

	requests []uint64 // by caller
}

// slot is a caller's number plus 1, or 0 if it is empty, and part of the hash.
type slot struct{ tag, number uint32 }

// caller is the part of a caller that look-ups read.
type caller struct {
	size uint8 // length of the key; if it is over len(head), the key is in names
	head [23]byte
}

func newCallers() *callers { return &callers{seed: maphash.MakeSeed(), slots: make([]slot, 1<<10)} }

// maxCallers leaves one bit of a number for other use.
const maxCallers = math.MaxInt32

// number returns the number of the caller with a key and its hash. It copies the key of a new
// caller.
func (c *callers) number(key []byte, hash uint64) (uint32, error) {
	mask, tag := uint64(len(c.slots)-1), uint32(hash>>32)
	i := hash & mask
	for ; c.slots[i].number != 0; i = (i + 1) & mask {
		if s := c.slots[i]; s.tag == tag && c.is(s.number-1, key) {
			return s.number - 1, nil
		}
	}
	n := uint32(len(c.names))
	if n == maxCallers {
		return 0, fmt.Errorf("more than %d callers", maxCallers)
	}
	c.slots[i] = slot{tag, n + 1}
	added := caller{size: uint8(min(len(key), math.MaxUint8))}
	copy(added.head[:], key)
	c.all = append(c.all, added)
	c.names = append(c.names, string(key))
	c.requests = append(c.requests, 0)
	if len(c.names) > len(c.slots)/2 {
		c.grow()
	}
	return n, nil
}

// is reports whether key is caller n's.
func (c *callers) is(n uint32, key []byte) bool {
	known := &c.all[n]
	if len(key) > len(known.head) {
		return c.names[n] == string(key)
	}
	return int(known.size) == len(key) && string(known.head[:len(key)]) == string(key)
}

// grow doubles the number of slots.
func (c *callers) grow() {
	c.slots = make([]slot, 2*len(c.slots))
	mask := uint64(len(c.slots) - 1)
	for n, name := range c.names {
		hash := maphash.String(c.seed, name)
		i := hash & mask
		for c.slots[i].number != 0 {
			i = (i + 1) & mask
		}
		c.slots[i] = slot{uint32(hash >> 32), uint32(n) + 1}
	}
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
