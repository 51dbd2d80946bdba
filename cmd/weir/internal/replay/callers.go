package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// By is what tells one caller from another.
type By string

// The ways to tell callers apart.
const (
	ByIP     By = "ip"
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
	return "", fmt.Errorf("callers can be told apart by %s, not by %q", strings.Join([]string{
		string(ByIP), string(ByPath), string(ByUser), string(ByIPPath)}, ", "), s)
}

// key returns the caller's name, built in buf if need be, or nil if the request has none: nobody was logged in, or no
// path was asked for.
func (by By) key(e *accesslog.Entry, buf []byte) []byte {
	switch by {
	case ByPath:
		return e.Path
	case ByUser:
		return e.User
	case ByIPPath:
		if len(e.Path) == 0 {
			return nil
		}
		// An address holds no space, so no two pairs make the same name.
		return append(append(append(buf[:0], e.IP...), ' '), e.Path...)
	}
	return e.IP
}

// callers gives each caller a number, and counts the requests of each.
type callers struct {
	numbers  map[string]uint32
	names    []string
	requests []uint64
	last     uint32 // the caller met last: clients come in runs
}

func newCallers() *callers { return &callers{numbers: make(map[string]uint32)} }

// number returns the number of the caller of that name, which it copies if it is new.
func (c *callers) number(name []byte) (uint32, error) {
	if len(c.names) > 0 && string(name) == c.names[c.last] {
		return c.last, nil
	}
	if n, ok := c.numbers[string(name)]; ok {
		c.last = n
		return n, nil
	}
	if len(name) > maxName {
		return c.number(shorten(name))
	}
	if len(c.names) == math.MaxUint32 {
		return 0, fmt.Errorf("more than %d callers", len(c.names))
	}
	n := uint32(len(c.names))
	own := string(name)
	c.numbers[own] = n
	c.names = append(c.names, own)
	c.requests = append(c.requests, 0)
	c.last = n
	return n, nil
}

// maxName is the longest key weir takes. Paths can be longer.
const maxName = 1024

// shorten replaces the end of a name that is too long by the digest of the whole, so that two of them stay two.
func shorten(name []byte) []byte {
	sum := sha256.Sum256(name)
	digest := "…sha256:" + hex.EncodeToString(sum[:])
	return append(append(make([]byte, 0, maxName), name[:maxName-len(digest)]...), digest...)
}
