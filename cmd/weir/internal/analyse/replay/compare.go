package replay

import (
	"cmp"
	"slices"
)

// Comparison counts the requests that only one of two limits, or of two sets of rules, denies.
type Comparison struct {
	Names [2]string  `json:"names"`
	Both  uint64     `json:"both"` // denied by both
	Only  [2]OnlyOne `json:"only"`
}

// OnlyOne are the requests that one denies and the other does not.
type OnlyOne struct {
	Denied  uint64  `json:"denied"`
	Met     int     `json:"callers_denied"` // callers of such a request
	Callers []Count `json:"callers"`        // the Config.Top with the most of them
	Routes  []Count `json:"routes"`

	callers, routes map[uint32]uint64 // all, by number, until the end
}

// Count is a part of the requests of an OnlyOne.
type Count struct {
	Name   string `json:"name"`
	Denied uint64 `json:"denied"`
}

// count counts a request that the first denies if a is set, and the second if b is.
func (c *Comparison) count(a, b bool, caller, route uint32) {
	switch {
	case a && b:
		c.Both++
	case a:
		c.Only[0].count(caller, route)
	case b:
		c.Only[1].count(caller, route)
	}
}

func (o *OnlyOne) count(caller, route uint32) {
	if o.Denied == 0 {
		o.callers, o.routes = map[uint32]uint64{}, map[uint32]uint64{}
	}
	o.Denied++
	o.callers[caller]++
	o.routes[route]++
}

// finish sets the top callers and routes.
func (c *Comparison) finish(callers, routes []string, top int) {
	most := func(counts map[uint32]uint64, names []string) []Count {
		all := []Count{}
		for i, n := range counts {
			all = append(all, Count{UTF8(names[i]), n})
		}
		slices.SortFunc(all, func(a, b Count) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Name, b.Name))
		})
		return all[:min(top, len(all))]
	}
	for i := range c.Only {
		o := &c.Only[i]
		o.Met = len(o.callers)
		o.Callers, o.Routes = most(o.callers, callers), most(o.routes, routes)
		o.callers, o.routes = nil, nil
	}
}
