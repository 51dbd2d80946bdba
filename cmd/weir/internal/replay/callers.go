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

// By is what callers are keyed by.
type By string

// The keys of callers.
const (
	ByIP     By = "ip"   // the address, of IPv6 the prefix
	ByPath   By = "path" // without the query
	ByUser   By = "user"
	ByIPPath By = "ip+path"
)

// ParseBy reads a By.
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
	raw  string // the last address that was normalized
	key  string // and its key: requests of a client come in runs
}

func newKeyer(by By, ipv6Bits int) *keyer {
	ip := httplimit.RemoteAddr()
	if ipv6Bits > 0 {
		ip = ip.IPv6Bits(ipv6Bits)
	}
	return &keyer{by: by, ip: ip}
}

// text returns the field of a request that its key is made of, if it is made of one.
func (k *keyer) text(e *accesslog.Entry) []byte {
	switch k.by {
	case ByPath:
		return e.Path
	case ByUser:
		return e.User
	}
	return e.IP
}

// append appends the key of a request, or nothing if it has none: nobody was logged in, or no path
// was asked for.
func (k *keyer) append(dst []byte, e *accesslog.Entry) []byte {
	from := len(dst)
	if k.by != ByIPPath {
		dst = k.appendText(dst, k.text(e))
	} else if len(e.Path) > 0 && len(e.IP) > 0 {
		// an address holds no space, so no two pairs make the same key
		dst = append(k.appendAddr(dst, e.IP), ' ')
		dst = append(dst, e.Path...)
	}
	if len(dst)-from > maxName {
		dst = append(dst[:from], shorten(dst[from:])...)
	}
	return dst
}

// appendText appends the key that is made of one field.
func (k *keyer) appendText(dst, text []byte) []byte {
	if k.by == ByPath || k.by == ByUser {
		return append(dst, text...)
	}
	return k.appendAddr(dst, text)
}

// appendAddr appends the key that httplimit has for an address. A name, which a server that looks
// names up has in the place of an address, is its own key.
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

// plainIPv4 reports whether addr is an IPv4 address in the one notation that net/netip writes. It
// is its own key, and nearly all addresses are: to parse it would be a fifth of the time a line
// takes.
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

// callers numbers callers in the order in which they are met. It is a hash table of its own because
// the parsers hash for it, and because with a million callers a look-up takes as long as it has
// cache misses: here two, in a map of strings five.
type callers struct {
	seed  maphash.Seed
	slots []slot // a power of two of them
	all   []caller
	names []string

	requests []uint64 // of each

	guesses []uint32 // of fetch
	fetched uint64   // by fetch: a sum, or the compiler would leave the reads out
}

// slot is a caller's number and 1, or 0 for none, and a part of the hash.
type slot struct{ tag, number uint32 }

// caller is what a look-up needs of a caller.
type caller struct {
	size uint8 // of the key; over len(head): the key is not here
	head [23]byte
}

func newCallers() *callers { return &callers{seed: maphash.MakeSeed(), slots: make([]slot, 1<<10)} }

// maxCallers leaves a bit of a number for other use.
const maxCallers = math.MaxInt32

// number returns the number of the caller of a key, whose hash is given. It copies the key if it is
// new.
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

// fetch brings what number will look at for these requests into the cache: the processor waits for
// one cache miss of number at a time, and for many of fetch's at once.
func (c *callers) fetch(of []unnumbered) {
	c.guesses = c.guesses[:0]
	mask := uint64(len(c.slots) - 1)
	for i := range of {
		c.guesses = append(c.guesses, c.slots[of[i].hash&mask].number)
	}
	for _, n := range c.guesses {
		if n != 0 {
			c.fetched += uint64(c.all[n-1].size)
		}
	}
}

// is reports whether key is that of the caller n.
func (c *callers) is(n uint32, key []byte) bool {
	known := &c.all[n]
	if len(key) > len(known.head) {
		return c.names[n] == string(key)
	}
	return int(known.size) == len(key) && string(known.head[:len(key)]) == string(key)
}

// grow doubles the slots.
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

// maxName is the longest key weir takes. Paths can be longer.
const maxName = 1024

// shorten replaces the end of a key that is too long by the digest of the whole, so that two of
// them stay two.
func shorten(key []byte) []byte {
	sum := sha256.Sum256(key)
	digest := "…sha256:" + hex.EncodeToString(sum[:])
	return append(append(make([]byte, 0, maxName), key[:maxName-len(digest)]...), digest...)
}
