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
	Paths   []Count `json:"paths"`

	callers, paths map[uint32]uint64 // all, by number, until the end
}

// Count is a share of the requests of an OnlyOne.
type Count struct {
	Name   string `json:"name"`
	Denied uint64 `json:"denied"`
}

// newComparison returns a Comparison to count in.
func newComparison() *Comparison {
	c := &Comparison{}
	for i := range c.Only {
		c.Only[i].callers, c.Only[i].paths = map[uint32]uint64{}, map[uint32]uint64{}
	}
	return c
}

// count counts a request that the first denies if a is set, and the second if b is.
func (c *Comparison) count(a, b bool, caller, path uint32) {
	switch {
	case a && b:
		c.Both++
	case a != b:
		one := &c.Only[map[bool]int{true: 0, false: 1}[a]]
		one.Denied++
		one.callers[caller]++
		one.paths[path]++
	}
}

// finish sets the top callers and paths.
func (c *Comparison) finish(callers, paths []string, top int) {
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
		one := &c.Only[i]
		one.Met, one.Callers, one.Paths = len(one.callers), most(one.callers, callers),
			most(one.paths, paths)
		one.callers, one.paths = nil, nil
	}
}
