package rules

import (
	"net/http"
	"time"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/clientkeys"
)

// bound holds the counters of one request's client to Guard.MaxKeysPerClient.
type bound struct {
	keys   *clientkeys.Keys // nil: no bound
	client string
	now    time.Time
}

// boundKey replaces c.key, the key of a counter of r, by one that the further values of the client
// share in r, if the client uses too many.
func (c *call) boundKey(r *Rule) {
	c.bound.keys.Lives(2 * r.Limit.Period())
	c.client = append(c.client[:0], c.bound.client...)
	if c.bound.keys.Admit(c.client, c.key, c.bound.now) {
		return
	}
	c.shared = true
	c.key = appendPart(c.key[:0], ':', r.Domain)
	c.key = appendPart(c.key, '+', r.Path) // the entry after a domain has another mark
	c.key = shorten(appendPart(c.key, '+', c.bound.client))
}

// boundOf returns the bound of a request's client: none without MaxKeysPerClient, and for a peer
// without an IP address. Invalid forwarding fields make the peer the client.
func (g *guarded) boundOf(r *http.Request) bound {
	if g.keys == nil {
		return bound{}
	}
	client, err := g.ClientIP.IPv6Bits(clientBits).Extract(r)
	if err != nil {
		client, err = httplimit.RemoteAddr().Extract(r)
	}
	if err != nil {
		return bound{}
	}
	return bound{g.keys, client, g.Engine.cfg.Now()}
}

// clientBits is the prefix of an IPv6 address that is one client, which has all addresses in it.
const clientBits = 64
