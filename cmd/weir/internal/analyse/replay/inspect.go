package replay

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// To look at the other fields of all requests would take a third longer. The first blocks of a file
// show which fields there are.
const (
	maxInspected  = 64 // requests of a block
	lessInspected = 4  // of a later one
	firstBlocks   = 16
)

// maxDistinct bounds the addresses of a field that are told apart.
const maxDistinct = 4096

// inspection is what some of the requests show of their callers: whether those are the clients or
// the proxies in front of this server.
type inspection struct {
	n         uint64
	private   uint64 // whose callers have private addresses
	unread    uint64 // with a forwarded address of another client, whose peer is not trusted
	hidden    uint64 // from a trusted peer without a forwarded address
	ports     ports
	callers   map[string]bool
	forwarded addresses // the first ones that were forwarded, where the caller is another one
	fields    map[accesslog.Field]*addresses
}

// addresses are those of a field, in the requests in which it has another one than the caller's.
type addresses struct {
	n        uint64
	public   uint64
	port     string // of all of them, unless mixed is set
	mixed    bool
	distinct map[string]bool // keys of callers
}

// inspect adds the request that the parser has read last.
func (in *inspection) inspect(k *keyer, p *accesslog.Parser, e *accesslog.Entry) {
	caller := string(k.appendAddr(nil, e))
	in.n++
	mark(&in.callers, caller)
	private := isPrivate(caller)
	if private {
		in.private++
	}
	if k.hidesClient(e) {
		in.hidden++
	}
	in.ports.add(1, e.PortAfterAgent())
	list, _ := e.Forwarded()
	first, _ := accesslog.ParseAddress([]byte(list))
	if k.isOther(first, caller) {
		in.forwarded.add(first, k.keyOf(first.Addr))
		if peer, err := netip.ParseAddr(string(e.IP)); err == nil && k.keyOf(peer) == caller {
			in.unread++
		}
	}
	p.Addresses(func(f accesslog.Field, a accesslog.Address) {
		if !k.isOther(a, caller) || a.Addr == first.Addr || f.IsServer() {
			return
		}
		if in.fields == nil {
			in.fields = make(map[accesslog.Field]*addresses)
		}
		of := in.fields[f]
		if of == nil {
			of = new(addresses)
			in.fields[f] = of
		}
		of.add(a, k.keyOf(a.Addr))
	})
}

// isMasked reports whether an address is another one without its last bits.
func isMasked(addr, whole netip.Addr) bool {
	raw, bits := addr.As16(), 16
	isZero := raw[15] == 0
	if addr.Is6() {
		isZero, bits = raw[6] == 0 && raw[7] == 0, 32 // the key has 64 bits
	}
	same, err := addr.Prefix(bits)
	return isZero && err == nil && same.Contains(whole)
}

// addressOf returns the address in the key of a caller.
func addressOf(caller string) string {
	addr, _, _ := strings.Cut(caller, "/") // of a prefix
	return addr
}

func isPrivate(caller string) bool {
	addr, err := netip.ParseAddr(addressOf(caller))
	return err == nil && clientaddr.IsPrivate(addr)
}

func mark(set *map[string]bool, key string) {
	if *set == nil {
		*set = make(map[string]bool)
	}
	if len(*set) < maxDistinct {
		(*set)[key] = true
	}
}

func (a *addresses) add(one accesslog.Address, key string) {
	a.mixed = a.mixed || one.Port == "" || a.n > 0 && a.port != one.Port
	a.port = one.Port
	a.n++
	if !clientaddr.IsPrivate(one.Addr) {
		a.public++
	}
	mark(&a.distinct, key)
}

func (a *addresses) merge(o *addresses) {
	if o.n == 0 {
		return
	}
	a.mixed = a.mixed || o.mixed || a.n > 0 && a.port != o.port
	a.port = o.port
	a.n, a.public = a.n+o.n, a.public+o.public
	for key := range o.distinct {
		mark(&a.distinct, key)
	}
}

func (in *inspection) merge(o *inspection) {
	in.n, in.private = in.n+o.n, in.private+o.private
	in.unread, in.hidden = in.unread+o.unread, in.hidden+o.hidden
	in.ports.merge(&o.ports)
	in.forwarded.merge(&o.forwarded)
	for key := range o.callers {
		mark(&in.callers, key)
	}
	for f, a := range o.fields {
		if in.fields == nil {
			in.fields = make(map[accesslog.Field]*addresses)
		}
		if in.fields[f] == nil {
			in.fields[f] = new(addresses)
		}
		in.fields[f].merge(a)
	}
}

// most reports whether n is of most of the requests.
func (in *inspection) most(n uint64) bool { return 2*n > in.n }

// fewCallers are so few that a field with more addresses is that of the clients. Private callers
// behind which most lines have as many public addresses are proxies, too.
const (
	fewCallers    = 16
	manyAddresses = 8
)

// hasClients reports whether most requests have a client in a field whose caller is another one.
// Addresses that all have one and the same port are those of upstreams.
func (in *inspection) hasClients(a *addresses) bool {
	n, callers := len(a.distinct), len(in.callers)
	switch {
	case !in.most(a.n) || !a.mixed:
		return false
	case in.most(in.private) && in.most(a.public):
		return n > callers || n >= manyAddresses
	case in.most(in.private):
		return n > callers
	}
	return n > callers && (callers <= fewCallers || n >= 2*callers)
}

// clients returns the field that probably has the addresses of the clients, and their number, 0 if
// there is none. If all is set, it may have fewer than there are callers.
func (in *inspection) clients(all bool) (best accesslog.Field, n int) {
	fields := slices.SortedFunc(maps.Keys(in.fields), func(a, b accesslog.Field) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Place, b.Place))
	})
	named := false
	for _, f := range fields {
		a := in.fields[f]
		is := f.IsForwarded()
		inMost := all && in.most(a.n) && a.mixed && (is || len(a.distinct) > 1)
		if !inMost && !in.hasClients(a) {
			continue
		}
		if n == 0 || is && !named || is == named && len(a.distinct) > n {
			best, n, named = f, len(a.distinct), is
		}
	}
	return best, n
}

// doubts returns sentences about proxies in front of this server. trusts is set if some are
// trusted.
func (in *inspection) doubts(trusts bool) (all []string) {
	after := in.most(in.ports.n) && !in.ports.mixed
	if after && trusts {
		all = append(all, fmt.Sprintf("the field after the user agent has port %s in most requests, as "+
			"the addresses of upstreams have: give --log-format with X-Forwarded-For", in.ports.port))
	}
	hidden := in.most(in.hidden)
	f, n := in.clients(hidden)
	switch {
	case in.most(in.unread) && in.most(in.private) && !after:
		all = append(all, "most requests come from private addresses, with a forwarded one that is not "+
			"read: give --trust with the addresses of your proxies")
	case in.most(in.unread) && !after:
		all = append(all, "most requests come from proxies that are not trusted, with a forwarded "+
			"address that is not read: give --trust with the addresses of your proxies")
	case in.hasClients(&in.forwarded):
		all = append(all, fmt.Sprintf("callers are probably not the clients: %d addresses were "+
			"forwarded by proxies that are not trusted: give --trust with the addresses of all your proxies",
			len(in.forwarded.distinct)))
	case n > 0:
		all = append(all, fmt.Sprintf("callers are probably not the clients: field %s has %d addresses: "+
			"give %s and --trust with the addresses of your proxies", f, n, f.Flag()))
	case hidden:
		all = append(all, "most requests come from trusted proxies, and the log has no X-Forwarded-For "+
			"of them")
	}
	return all
}

// fewRequests is the number of requests below which nothing can be said about their callers.
const fewRequests = 10
