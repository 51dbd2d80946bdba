package replay

import (
	"cmp"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/endpoint"
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
	Paths   []Count `json:"paths"`

	callers, paths map[uint32]uint64 // all, by number, until the end
}

// Count is a part of the requests of an OnlyOne.
type Count struct {
	Name   string `json:"name"`
	Denied uint64 `json:"denied"`
}

// count counts a request that the first denies if a is set, and the second if b is.
func (c *Comparison) count(a, b bool, caller, path uint32) {
	switch {
	case a && b:
		c.Both++
	case a:
		c.Only[0].count(caller, path)
	case b:
		c.Only[1].count(caller, path)
	}
}

func (o *OnlyOne) count(caller, path uint32) {
	if o.Denied == 0 {
		o.callers, o.paths = map[uint32]uint64{}, map[uint32]uint64{}
	}
	o.Denied++
	o.callers[caller]++
	o.paths[path]++
}

// finish sets the top callers and paths. Paths that differ only by their ids are one.
func (c *Comparison) finish(callers, paths []string, top int) {
	most := func(counts map[uint32]uint64, names []string, folded func(string) string) []Count {
		kinds := map[string]Count{}
		for i, n := range counts {
			key := folded(names[i])
			one := Count{key, n + kinds[key].Denied}
			if kinds[key].Denied == 0 {
				one.Name = names[i] // it may be the only one
			}
			kinds[key] = one
		}
		all := []Count{}
		for _, one := range kinds {
			all = append(all, Count{UTF8(one.Name), one.Denied})
		}
		slices.SortFunc(all, func(a, b Count) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Name, b.Name))
		})
		return all[:min(top, len(all))]
	}
	for i := range c.Only {
		o := &c.Only[i]
		o.Met = len(o.callers)
		o.Callers = most(o.callers, callers, func(name string) string { return name })
		o.Paths = most(o.paths, paths, endpoint.FoldIDs)
		o.callers, o.paths = nil, nil
	}
}
