package rules

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/clientkeys"
)

// bound holds the counters of one request's client to Guard.MaxKeysPerClient.
type bound struct {
	keys   *clientkeys.Keys
	client []byte
	now    time.Time
	shared bool // a key was replaced
}

// key returns the key of a counter of r or, if the client uses too many, one that its further values
// share in r. It may overwrite key.
func (b *bound) key(key []byte, r *Rule) []byte {
	b.keys.Lives(2 * r.Limit.Period())
	if b.keys.Admit(b.client, key, b.now) {
		return key
	}
	b.shared = true
	key = appendPart(key[:0], ':', r.Domain)
	key = appendPart(key, '+', r.Path) // the entry after a domain has another mark
	return shorten(appendPart(key, '+', string(b.client)))
}

// boundOf returns the bound of a request's client, or nil if there is none: without
// MaxKeysPerClient, and for a peer without an IP address. Invalid forwarding fields make the peer
// the client.
func (g *guarded) boundOf(r *http.Request) *bound {
	if g.keys == nil {
		return nil
	}
	client, err := g.ClientIP.IPv6Bits(clientBits).Extract(r)
	if err != nil {
		client, err = httplimit.RemoteAddr().Extract(r)
	}
	if err != nil {
		return nil
	}
	return &bound{keys: g.keys, client: []byte(client), now: g.Engine.cfg.Now()}
}

// clientBits is the prefix of an IPv6 address that is one client, which has all addresses in it.
const clientBits = 64
