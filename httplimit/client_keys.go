package httplimit

import (
	"log/slog"
	"net/http"
)

// sharedPart begins the part of a joined key that a client's keys beyond the bound share. No
// extracted key collides with it: it makes a joined key of three parts, and theirs have two.
var sharedPart = string(appendPart(nil, "shared"))

// sharedKey begins such a key where the others are the extracted ones, of which none begins so.
const sharedKey = "\x00shared"

// exceedsKeys reports whether the client, which it stores in c.client, uses too many keys beside
// key, which e has extracted, or a function if e is nil.
func (c *call) exceedsKeys(r *http.Request, e Extractor, key []byte) bool {
	return c.keys != nil && !oneKeyEach(e) && c.exceeds(r, key)
}

func (c *call) exceeds(r *http.Request, key []byte) bool {
	client, ok := c.clientOf(c.client[:0], r)
	c.client = client
	if !ok || c.keys.Admit(client, key, c.Now()) {
		return false
	}
	c.log(r.Context(), &c.throttles.shared, slog.LevelWarn,
		"httplimit: a client's further keys share one budget; if it is a proxy, set ClientIP",
		string(client), slog.Int("max_keys", c.keys.Most()))
	return true
}

// oneKeyEach reports whether e extracts one key only for each client address.
func oneKeyEach(e Extractor) bool {
	ip, ok := e.(IP)
	return ok && ip.bits <= defaultIPv6Bits
}

// findIP returns the first IP in e.
func findIP(e Extractor) (IP, bool) {
	switch e := e.(type) {
	case IP:
		return e, true
	case join:
		for _, part := range e {
			if ip, ok := findIP(part); ok {
				return ip, true
			}
		}
	}
	return IP{}, false
}
