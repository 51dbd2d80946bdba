package replay

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
)

// Route counts the requests of an endpoint, as endpoint.Of names it, or of several if a log has
// more than maxRoutes: then paths end after as many segments as that bound admits.
type Route struct {
	Name     string `json:"route"`
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
}

const (
	maxRoutes    = 1 << 15
	maxRouteName = 200 // bytes
	maxDepth     = 16  // segments of a path
)

// routeNamer names the routes of requests, and remembers those it has named. It is not safe for
// concurrent use.
type routeNamer struct {
	known map[string]string // by method and path; at most maxKnown
	key   []byte
}

const maxKnown = 1 << 12

func (n *routeNamer) name(e *accesslog.Entry) string {
	n.key = append(append(append(n.key[:0], e.Method...), ' '), e.Path...)
	name, ok := n.known[string(n.key)]
	if ok {
		return name
	}
	name = endpointOf(e)
	if len(name) > maxRouteName {
		name = name[:maxRouteName] + "…"
	}
	if len(n.known) == maxKnown {
		clear(n.known)
	}
	n.known[string(n.key)] = name
	return name
}

// routeTable numbers routes in order of appearance. Over maxRoutes it cuts all paths after fewer
// segments, so which routes there are does not depend on their order.
type routeTable struct {
	names   []string          // by number, cut to depth; several may be equal after a cut
	numbers map[string]uint32 // of different names
	depth   int
	most    int
}

func newRouteTable() *routeTable {
	return &routeTable{numbers: make(map[string]uint32), depth: maxDepth, most: maxRoutes}
}

func (t *routeTable) number(name string) uint32 {
	name = cut(name, t.depth)
	n, ok := t.numbers[name]
	if ok {
		return n
	}
	n = uint32(len(t.names))
	t.names, t.numbers[name] = append(t.names, name), n
	for ; len(t.numbers) > t.most; t.depth-- {
		clear(t.numbers)
		for i, long := range t.names {
			t.names[i] = cut(long, t.depth-1)
			t.numbers[t.names[i]] = uint32(i)
		}
	}
	return n
}

// cut ends the path of a route after so many segments, and after -1 the method too.
func cut(name string, segments int) string {
	if segments < 0 {
		return "…"
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		segments--
		if segments < 0 {
			return name[:i] + "/…"
		}
	}
	return name
}

// ranks returns the different names in order, and the place there of each number: hits of one
// instant are in the order of their routes, which must not depend on the order of the lines.
func (t *routeTable) ranks() (names []string, ranks []uint32) {
	names = slices.Compact(slices.Sorted(slices.Values(t.names)))
	for _, name := range t.names {
		rank, _ := slices.BinarySearch(names, name)
		ranks = append(ranks, uint32(rank))
	}
	return names, ranks
}

// rankRoutes replaces the numbers of routes by their ranks.
func (r *run) rankRoutes() {
	names, ranks := r.routes.ranks()
	r.routes.names = names
	for _, p := range r.parts {
		if r.cfg.Routes {
			p.routes = make([]uint64, len(names))
		}
		for _, run := range p.spool.runs {
			for i := range run {
				run[i].route = ranks[run[i].route]
			}
		}
	}
}

// routesOf returns the Config.Top routes with the most denials, then with the most requests.
func (r *run) routesOf(requests func(route int) uint64, denied map[uint32]uint64) []Route {
	all := []Route{}
	for i, name := range r.routes.names {
		if n := requests(i); n > 0 {
			all = append(all, Route{UTF8(name), n, denied[uint32(i)]})
		}
	}
	slices.SortFunc(all, func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
			cmp.Compare(a.Name, b.Name))
	})
	return all[:min(r.cfg.Top, len(all))]
}

// onRoute returns how many requests a route has.
func (r *run) onRoute(route int) (n uint64) {
	for _, p := range r.parts {
		n += p.routes[route]
	}
	return n
}

// deniedByRoute returns the denials of a row by route.
func (r *run) deniedByRoute(row int) map[uint32]uint64 {
	all := make(map[uint32]uint64)
	for _, p := range r.parts {
		for route, n := range p.rows[row].routes {
			all[route] += n
		}
	}
	return all
}
