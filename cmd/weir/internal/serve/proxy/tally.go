package proxy

import (
	"sync/atomic"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
)

// tally counts the decisions of a process by their kind.
type tally struct {
	stats  httplimit.Stats   // of the middleware
	flight httplimit.Stats   // of the bound on requests in flight of all clients
	others [16]atomic.Uint64 // of other decisions
}

// count returns the number of requests of a kind, including refusals by the bound on requests in
// flight of all clients. It never falls, also when the configuration changes.
func (t *tally) count(k httplimit.Kind) uint64 {
	n := t.stats.Count(k) + t.others[k].Load()
	if k == httplimit.Busy {
		n += t.flight.Count(k)
	}
	return n
}

// sums adds them up to what the page shows, beside how often the upstream failed.
func (t *tally) sums(failed uint64) live.Sums {
	return live.Sums{
		Admitted: t.count(httplimit.Admitted) + t.count(httplimit.Bypassed) + t.count(httplimit.Exempt),
		Denied:   t.count(httplimit.Denied) + t.count(httplimit.Listed),
		Failed: t.count(httplimit.NoKey) + t.count(httplimit.Failed) + t.count(httplimit.Canceled) +
			t.count(httplimit.Busy),
		Errors: failed,
	}
}
