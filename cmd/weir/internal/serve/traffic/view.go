package traffic

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// View is what callers sent in a window.
type View struct {
	Callers  []Caller // the most requests first
	Requests uint64   // of all callers, as are the next two
	Denied   uint64
	Upstream time.Duration
}

// Of returns a caller of the view, or one without requests.
func (v *View) Of(key string) Caller {
	key = cut(key)
	i := slices.IndexFunc(v.Callers, func(c Caller) bool { return c.Key == key })
	if i < 0 {
		return Caller{Key: key}
	}
	return v.Callers[i]
}

// Stake returns the larger of two shares: of all requests, which n are, and of the upstream's time.
func (v *View) Stake(n uint64, c *Counts) float64 {
	return max(float64(n)/float64(max(v.Requests, 1)),
		float64(c.Upstream)/float64(max(v.Upstream, 1)))
}

// Foremost returns the callers with the largest stakes, at most so many: the largest first.
func (v *View) Foremost(most int) []Caller {
	all := slices.Clone(v.Callers)
	slices.SortStableFunc(all, func(a, b Caller) int {
		return cmp.Compare(v.Stake(b.N, &b.Counts), v.Stake(a.N, &a.Counts))
	})
	return all[:min(len(all), most)]
}

// Group is callers that stand near each other.
type Group struct {
	Prefix  netip.Prefix
	Callers int
	Quiet   int // those of them that send less than a quarter of what half of them send
	N       uint64
	Counts
}

// leastGrouped is how many callers are a group, and mostly is the share of them that a longer
// prefix must hold to be the group's.
const leastGrouped, mostly = 4, .9

// Groups returns the groups of the view, the largest stakes first. Addresses are near in a /24, or
// a /48 of IPv6, and a group has the longest prefix that holds nine tenths of those callers.
func (v *View) Groups() []Group {
	near := make(map[netip.Prefix][]*Caller)
	for i := range v.Callers {
		if c := &v.Callers[i]; c.Addr.IsValid() {
			at, _ := c.Addr.Unmap().Prefix(nearBits(c.Addr)) // fits
			near[at] = append(near[at], c)
		}
	}
	var all []Group
	for at, callers := range near {
		for longer := true; longer; {
			at, callers, longer = narrower(at, callers)
		}
		if len(callers) >= leastGrouped {
			all = append(all, grouped(at, callers))
		}
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(v.Stake(b.N, &b.Counts), v.Stake(a.N, &a.Counts)),
			a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	return all
}

func nearBits(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 24
	}
	return 48
}

// narrower returns the half of a prefix that most of its callers are in, if there is one.
func narrower(at netip.Prefix, callers []*Caller) (netip.Prefix, []*Caller, bool) {
	if at.Bits() == at.Addr().BitLen() {
		return at, callers, false
	}
	halves := make(map[netip.Prefix][]*Caller)
	for _, c := range callers {
		half, _ := c.Addr.Unmap().Prefix(at.Bits() + 1)
		halves[half] = append(halves[half], c)
	}
	for half, in := range halves {
		if float64(len(in)) >= mostly*float64(len(callers)) {
			return half, in, true
		}
	}
	return at, callers, false
}

func grouped(at netip.Prefix, callers []*Caller) Group {
	g := Group{Prefix: at, Callers: len(callers)}
	slices.SortFunc(callers, func(a, b *Caller) int { return cmp.Compare(a.N, b.N) })
	usual := callers[len(callers)/2].N
	for _, c := range callers {
		if 4*c.N < usual {
			g.Quiet++
		}
		g.N += c.N
		g.add(&c.Counts)
	}
	return g
}
