package httplimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// sharedPart begins the part of a joined key that a client's keys beyond the bound share. No
// extracted key collides with such a key, which has three parts: extracted ones have two.
var sharedPart = string(appendPart(nil, "shared"))

// sharedKey begins such a key where the others are the extracted ones, of which none begins so.
const sharedKey = "\x00shared"

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

// newKeys returns the bound of MaxKeysPerClient, or nil if each client has one key only or
// MaxKeysPerClient is negative.
func newKeys(cfg *Config, policies []*policy) *clientaddr.Keys {
	several := func(p *policy) bool {
		return p.Keys != nil || !oneKeyEach(cmp.Or(p.Extractor, cfg.Extractor))
	}
	if cfg.MaxKeysPerClient < 0 ||
		cfg.Decider == nil && !slices.ContainsFunc(policies, several) {
		return nil
	}
	keys := clientaddr.NewKeys(cmp.Or(cfg.MaxKeysPerClient, clientaddr.DefaultKeys))
	keys.Lives(time.Minute)
	keys.Lives(2 * cfg.Penalty.Within)
	for _, p := range policies {
		keys.Lives(2 * p.Duration)
	}
	return keys
}
