package replay

import (
	"fmt"
	"net/netip"
	"strings"
)

// fewRequests is the number of requests below which nothing can be said about their callers.
const fewRequests = 10

// A log of which more than one line in maxUnread could not be read says too little of its clients.
// A few per cent are garbage that clients send, lines that were cut, and messages among requests.
const maxUnread = 20

// unreadLines returns a sentence that says which lines could not be read if they are too many.
func (r *run) unreadLines() string {
	blank := r.unread.blank()
	bad, lines := r.unread.Count-blank, r.lines-blank
	if lines < fewRequests || bad*maxUnread <= lines {
		return ""
	}
	return fmt.Sprintf("%d of %d lines could not be read: %s", bad, lines, r.unread.kinds())
}

// doubts returns sentences that say why the callers of a log are probably not its clients. Limits
// for such callers would deny the wrong requests.
func (r *run) doubts() (all []string) {
	res, callers := r.result, len(r.callers.names)
	if r.cfg.By == ByIP && res.Unkeyed > res.Requests && res.Unkeyed+res.Requests >= fewRequests {
		all = append(all, fmt.Sprintf("%d of %d requests have no address", res.Unkeyed,
			res.Unkeyed+res.Requests))
	}
	if res.Requests < fewRequests {
		return all
	}
	if names := r.callers.withoutAddress(); r.byAddress() && 2*names > callers {
		all = append(all, fmt.Sprintf("%d of %d callers are no addresses, such as %q", names, callers,
			r.callers.names[0]))
	}
	if r.byAddress() {
		all = append(all, r.inspected.doubts(len(r.cfg.Trust) > 0)...)
	}
	if callers == 1 && res.Filtered == 0 {
		all = append(all, "all requests have one caller")
	}
	if uint64(callers) == res.Requests && res.Filtered == 0 {
		all = append(all, "there are as many callers as lines")
	}
	return all
}

func (r *run) byAddress() bool { return r.cfg.By == ByIP || r.cfg.By == ByIPPath }

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
