package replay

import (
	"fmt"
	"net/netip"
	"strings"
)

// fewRequests is the number of requests below which nothing can be said about their callers.
const fewRequests = 10

// doubts returns sentences that say why the callers of a log are probably not its clients. Limits
// for such callers would deny the wrong requests.
func (r *run) doubts() (all []string) {
	res, callers := r.result, len(r.callers.names)
	if res.Requests < fewRequests {
		return nil
	}
	byAddress := r.cfg.By == ByIP || r.cfg.By == ByIPPath
	if names := r.callers.withoutAddress(); byAddress && 2*names > callers {
		all = append(all, fmt.Sprintf("%d of %d callers are no addresses, such as %q", names, callers,
			r.callers.names[0]))
	}
	if hidden := byAddress && 2*r.hidden > r.inspected; hidden && len(r.cfg.Trust) == 0 {
		all = append(all, "most requests come from private addresses, with a forwarded one that is not "+
			"read: give --trust with the addresses of your proxies")
	} else if hidden {
		all = append(all, "most requests come from trusted proxies, and the log has no X-Forwarded-For "+
			"of them")
	}
	if callers == 1 && res.Filtered == 0 {
		all = append(all, "all requests have one caller")
	}
	if uint64(callers) == res.Requests && res.Filtered == 0 {
		all = append(all, "there are as many callers as lines")
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
